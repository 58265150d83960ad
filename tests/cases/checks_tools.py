"""Tool calls: their identity in streams, what ends a turn that has one, and how choices of tools travel."""

import json
from typing import Any

from tests.cases.anthropic_stream import fold_messages
from tests.cases.case import Case
from tests.cases.reply import Choice, fold, message_of
from tests.cases.stage import Local, staged
from tests.mock_upstream import Answer

__all__ = ["CHECKS"]


def _arguments(choice: Choice) -> list[Any]:
    return [json.loads(call["arguments"]) for call in choice.calls]


async def _ts_01(case: Case) -> None:
    async with staged(case) as stage:
        choice = fold((await stage.post()).chunks)[0]
        assert [call["name"] for call in choice.calls] == ["get_weather", "get_weather"]
        assert _arguments(choice) == [{"city": "Oslo"}, {"city": "Bergen"}]
        assert len({call["id"] for call in choice.calls}) == 2
        assert choice.finish == "tool_calls"


async def _ts_02(case: Case) -> None:
    raw = case.upstream_bytes
    again = b'"id": "", "type": "", "function": {"name": "", "arguments"'
    bodies = [
        raw,
        raw.replace(b'"id": "", "type": "function", "function": {"arguments"', again),
        raw.replace(b'"id": ""', b'"id": null'),
    ]
    assert len(set(bodies)) == 3
    async with staged(case) as stage:
        for body in bodies:
            stage.upstream.script(case.answer(body))
            chunks = (await stage.post()).chunks
            choice = fold(chunks)[0]
            assert choice.calls == [{"id": "call_7", "name": "get_weather", "arguments": '{"city":"Oslo"}'}]
            assert choice.finish == "tool_calls"
            deltas = [
                call for chunk in chunks for part in chunk["choices"] for call in part["delta"].get("tool_calls", [])
            ]
            assert all(delta.get("id") != "" and delta.get("type") != "" for delta in deltas)


async def _ts_03(case: Case) -> None:
    async with staged(case) as stage:
        message = fold_messages((await stage.post()).events)
        (block,) = message.blocks
        assert block.start == {"type": "tool_use", "id": "call_a", "name": "get_weather", "input": {}}
        assert json.loads(block.text) == {"city": "Oslo"}
        assert message.stop_reason == "tool_use"


async def _ts_03_chat(case: Case) -> None:
    """The same upstream towards a chat client: no call without its name."""
    body = {
        "model": "oai/x",
        "stream": True,
        "messages": case.body["messages"],
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}],
    }
    async with staged(case) as stage:
        choice = fold((await stage.post(body, "/v1/chat/completions")).chunks)[0]
        assert choice.calls == [{"id": "call_a", "name": "get_weather", "arguments": '{"city":"Oslo"}'}]
        assert choice.finish == "tool_calls"


async def _ts_04(case: Case) -> None:
    local = Local(settings={"tool_format": case.engine["tool_format"]})
    text = "".join(case.engine["pieces"])
    cuts = [case.engine["pieces"], list(text), *([text[:at], text[at:]] for at in range(1, len(text)))]
    async with staged(case, local=local) as stage:
        for pieces in cuts:
            local.says(*pieces)
            streamed, whole = await stage.both(case.body)
            choice = fold(streamed.chunks)[0]
            assert [call["name"] for call in choice.calls] == ["get_weather"]
            assert choice.calls[0]["arguments"] == '{"city": "Oslo"}'
            assert choice.finish == "tool_calls"
            assert choice.content == ""
            assert message_of(whole.ok).calls[0]["arguments"] == choice.calls[0]["arguments"]


async def _ts_05(case: Case) -> None:
    async with staged(case) as stage:
        choice = fold((await stage.post()).chunks)[0]
        assert choice.calls == [{"id": "call_z", "name": "get_weather", "arguments": '{"city":"Oslo"}'}]
        assert choice.finish == "tool_calls"


async def _fr_03(case: Case) -> None:
    local = Local()
    local.says(*case.engine["pieces"])
    async with staged(case, local=local) as stage:
        for reply in await stage.both(case.body):
            choice = message_of(reply.ok) if reply.headers["content-type"] == "application/json" else None
            choice = choice or fold(reply.chunks)[0]
            assert (choice.finish == "tool_calls") == bool(choice.calls)


def _whole_answer(message: dict[str, Any], finish: str) -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return Answer.json(json.dumps({"id": "c1", "created": 1, "model": "m", "choices": [choice]}).encode())


def _streamed_answer(delta: dict[str, Any], finish: str) -> Answer:
    deltas = [({"role": "assistant", **delta}, None), ({}, finish)]
    chunks = [
        {"id": "c1", "created": 1, "model": "m", "choices": [{"index": 0, "delta": part, "finish_reason": word}]}
        for part, word in deltas
    ]
    return Answer.sse([*(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks), b"data: [DONE]\n\n"])


async def _fr_03_remote(case: Case) -> None:
    """Prose for an answer though a call was required: content and `stop`, whatever the upstream calls it."""
    prose = {"content": "Hello there.", "tool_calls": []}
    remote = case.towards("oai/x")
    body = remote.body
    for word in ("stop", "tool_calls"):
        async with staged(remote, _streamed_answer(prose, word), _whole_answer(prose, word)) as stage:
            streamed, whole = await stage.both(body)
            for choice in (fold(streamed.chunks)[0], message_of(whole.ok)):
                assert choice.content == "Hello there."
                assert choice.calls == []
                assert choice.finish == "stop"
            assert "tool_calls" not in whole.json["choices"][0]["message"]


async def _fr_04(case: Case) -> None:
    local = Local()
    local.says(*case.engine["pieces"])
    async with staged(case, local=local) as stage:
        streamed, whole = await stage.both(case.body)
        choices = (fold(streamed.chunks)[0], message_of(whole.ok))
        assert [choice.finish for choice in choices] == ["stop", "stop"]
        assert [_arguments(choice) for choice in choices] == [[{"city": "Oslo"}]] * 2


async def _fr_04_remote(case: Case) -> None:
    """A named choice ends in `stop`, an automatic and a required one in `tool_calls`, streamed or not."""
    call = {"id": "c9", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    remote = case.towards("oai/x")
    body = remote.body
    expected = ((body["tool_choice"], "stop"), ("auto", "tool_calls"), ("required", "tool_calls"))
    for upstream_word in ("stop", "tool_calls"):
        answers = (
            _streamed_answer({"tool_calls": [{"index": 0, **call}]}, upstream_word),
            _whole_answer({"content": None, "tool_calls": [call]}, upstream_word),
        )
        for tool_choice, finish in expected:
            async with staged(remote, *answers) as stage:
                streamed, whole = await stage.both({**body, "tool_choice": tool_choice})
                for choice in (fold(streamed.chunks)[0], message_of(whole.ok)):
                    assert choice.finish == finish, (upstream_word, tool_choice)
                    assert _arguments(choice) == [{"city": "Oslo"}]


async def _tc_01(case: Case) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    expected: list[tuple[Any, dict[str, Any]]] = [
        (None, {"type": "auto"}),
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        (named, {"type": "tool", "name": "get_weather"}),
        ("none", {"type": "none"}),
    ]
    async with staged(case) as stage:
        for choice, outgoing in expected:
            for parallel in (False, True, None):
                body = case.body_with(parallel_tool_calls=parallel, tool_choice=choice)
                (await stage.post({name: value for name, value in body.items() if value is not None})).ok  # noqa: B018
                sent = stage.sent().get("tool_choice", {"type": "auto"})
                disabled = sent.pop("disable_parallel_tool_use", False)
                assert sent == outgoing
                assert disabled is (parallel is False and choice != "none")


async def _tc_01_openai(case: Case) -> None:
    """Towards a server of the client's own dialect the flag goes as it is."""
    call = {"id": "c9", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    remote = case.towards("oai/x")
    async with staged(remote, _whole_answer({"tool_calls": [call]}, "tool_calls")) as stage:
        assert message_of((await stage.post()).ok).finish == "tool_calls"
        assert stage.sent()["parallel_tool_calls"] is False


async def _tc_01_unable(case: Case) -> None:
    """A target that has no such flag refuses it by name, or it is dropped and said so where the operator allows it."""
    call = {"id": "c9", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    answer = _whole_answer({"tool_calls": [call]}, "tool_calls")
    for model in ("deepseek/x", "lm-studio/x"):
        async with staged(case.towards(model), answer) as stage:
            refused = await stage.post()
            assert (refused.status, refused.error["param"]) == (400, "parallel_tool_calls"), model
            assert stage.upstream.requests == []
    async with staged(case.towards("deepseek/x"), answer, config={"server": {"unsupported_params": "drop"}}) as stage:
        reply = await stage.post()
        assert message_of(reply.ok).finish == "tool_calls"
        assert reply.headers["x-gateway-dropped-params"] == "parallel_tool_calls"
        assert "parallel_tool_calls" not in stage.sent()


async def _tc_01_local(case: Case) -> None:
    """The local provider keeps the first call, in both modes."""
    local = Local()
    calls = [
        f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>' for city in "ab"
    ]
    async with staged(case.towards("local/x"), local=local) as stage:
        local.says("\n".join(calls))
        for parallel, kept in ((False, 1), (True, 2)):
            streamed, whole = await stage.both(case.body_with(model="local/x", parallel_tool_calls=parallel))
            for choice in (fold(streamed.chunks)[0], message_of(whole.ok)):
                assert [call["arguments"] for call in choice.calls] == ['{"city": "a"}', '{"city": "b"}'][:kept]
                assert choice.finish == "tool_calls"


async def _ol_01(case: Case) -> None:
    async with staged(case) as stage:
        for arguments, outgoing in (('{"city":"Oslo"}', {"city": "Oslo"}), ("", {}), ("{}", {})):
            body = case.body
            body["messages"][1]["tool_calls"][0]["function"]["arguments"] = arguments
            choice = message_of((await stage.post(body)).ok)
            assert choice.content == "15 C"
            assert choice.finish == "stop"
            _, turn, result = stage.sent()["messages"]
            assert turn["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": outgoing}
            assert (result["role"], result["tool_name"], result["content"]) == ("tool", "get_weather", "15")
        body["messages"][1]["tool_calls"][0]["function"]["arguments"] = '{"city": '
        assert (await stage.post(body)).status < 500
        calling = {
            "message": {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"function": turn["tool_calls"][0]["function"]}],
            }
        }
        stage.upstream.script(
            Answer.json(json.dumps({"model": "x", **calling, "done": True, "done_reason": "stop"}).encode())
        )
        choice = message_of((await stage.post()).ok)
        assert _arguments(choice) == [{}]
        assert choice.finish == "tool_calls"


CHECKS = {
    "TS-01": _ts_01,
    "TS-02": _ts_02,
    "TS-03": _ts_03,
    "TS-03/chat": _ts_03_chat,
    "TS-04": _ts_04,
    "TS-05": _ts_05,
    "FR-03": _fr_03,
    "FR-03/remote": _fr_03_remote,
    "FR-04": _fr_04,
    "FR-04/remote": _fr_04_remote,
    "TC-01": _tc_01,
    "TC-01/openai-compatible": _tc_01_openai,
    "TC-01/unable": _tc_01_unable,
    "TC-01/local": _tc_01_local,
    "OL-01": _ol_01,
}
