"""Logprobs of local models: true bytes, zero alternatives, no infinity, and the scoring of prompts."""

from typing import Any

from tests.cases.case import Case
from tests.cases.reply import fold, message_of
from tests.cases.stage import Local, staged
from tests.scripted_engine import Script

__all__ = ["CHECKS"]


async def _lp_01(case: Case) -> None:
    pieces = [bytes.fromhex(piece) for piece in case.engine["token_bytes_hex"]]
    local = Local()
    vocabulary = local.vocabulary
    ids = [vocabulary.add(piece) for piece in pieces]
    rival = vocabulary.add("é")
    logits = {**dict.fromkeys(ids, 1.0), rival: 2.0}
    async with staged(case, local=local) as stage:
        for top, script_logits in ((1, None), (2, logits)):
            local.engine.script(Script(steps=[(token,) for token in ids], logits=script_logits))
            streamed, whole = await stage.both(case.body_with(top_logprobs=top))
            for choice in (fold(streamed.chunks)[0], message_of(whole.ok)):
                assert choice.content == "😊"
                assert [entry["bytes"] for entry in choice.logprobs] == [[piece[0]] for piece in pieces]
                assert b"".join(bytes(entry["bytes"]) for entry in choice.logprobs) == choice.content.encode()
                assert all(entry["token"] and "\ufffd" not in entry["token"] for entry in choice.logprobs)
                assert all(len(entry["top_logprobs"]) == top for entry in choice.logprobs)
                if script_logits is not None:
                    best = [entry["top_logprobs"][0] for entry in choice.logprobs]
                    assert [(entry["token"], entry["bytes"]) for entry in best] == [("é", list("é".encode()))] * 4


async def _lp_02(case: Case) -> None:
    local = Local()
    local.says(*case.engine["pieces"], finish="length")
    async with staged(case, local=local) as stage:
        for top, count in ((0, 0), (None, 0), (1, 1), (20, 20)):
            body = {name: value for name, value in case.body_with(top_logprobs=top).items() if value is not None}
            streamed, whole = await stage.both(body)
            for choice in (fold(streamed.chunks)[0], message_of(whole.ok)):
                assert [entry["token"] for entry in choice.logprobs] == ["A", "B"]
                assert all(entry["logprob"] == -0.5 for entry in choice.logprobs)
                assert [len(entry["top_logprobs"]) for entry in choice.logprobs] == [count, count]
        for wrong in ({"top_logprobs": 21}, {"top_logprobs": -1}, {"top_logprobs": 0, "logprobs": False}):
            for reply in await stage.both(case.body_with(**wrong)):
                assert (reply.status, reply.error["param"]) == (400, "top_logprobs")


async def _lp_02_completions(case: Case) -> None:
    local = Local()
    local.says(*case.engine["pieces"], finish="length")
    body = {"model": "local/x", "prompt": "Hi", "max_tokens": 2}
    async with staged(case, local=local) as stage:
        for count in (0, 1, 5):
            streamed, whole = await stage.both({**body, "logprobs": count}, "/v1/completions")
            parts = [part["logprobs"] for chunk in streamed.chunks for part in chunk["choices"] if part["logprobs"]]
            joined = {name: [item for part in parts for item in part[name] or []] for name in parts[0]}
            for logprobs in (joined, whole.ok["choices"][0]["logprobs"]):
                assert logprobs["tokens"] == ["A", "B"]
                assert logprobs["token_logprobs"] == [-0.5, -0.5]
                assert logprobs["text_offset"] == [0, 1]
                alternatives = logprobs["top_logprobs"] or [{}, {}]
                assert all(count <= len(entry) <= count + 1 for entry in alternatives)
        for reply in await stage.both(body, "/v1/completions"):
            assert reply.status == 200
        for wrong in (21, -1, 1.5, "1"):
            for reply in await stage.both({**body, "logprobs": wrong}, "/v1/completions"):
                assert (reply.status, reply.error["param"]) == (400, "logprobs")


async def _lp_03(case: Case) -> None:
    local = Local()
    ids = [local.vocabulary.add(piece) for piece in ("yes", "no", "maybe", "never", "always", "often")]
    logits = dict(zip(ids, map(float, case.engine["logits"]), strict=True))
    local.engine.script(Script(steps=[ids[:1]], finish="length", logits=logits))
    async with staged(case, local=local) as stage:
        for reply in await stage.both(case.body):
            entries = fold(reply.chunks)[0].logprobs if "stream" in reply.headers["content-type"] else None
            (entry,) = entries or message_of(reply.ok).logprobs
            assert entry["token"] == "yes"
            assert entry["logprob"] == 0.0
            assert [other["logprob"] for other in entry["top_logprobs"]] == [0.0, *[-9999.0] * 4]
            assert b"Infinity" not in reply.body
            assert b"NaN" not in reply.body
        for word in (b"NaN", b"Infinity", b"-Infinity"):
            raw = b'{"model": "local/x", "messages": [{"role": "user", "content": "hi"}], "temperature": %b}' % word
            assert (await stage.post(raw)).error["type"] == "invalid_request_error"


async def _ec_01(case: Case) -> None:
    local = Local()
    for piece in case.engine["prompt_tokens"]:
        local.vocabulary.add(piece)
    local.vocabulary.bos_id = None
    local.says("!")
    body = case.body_with(add_special_tokens=False)
    async with staged(case, local=local) as stage:
        streamed, whole = await stage.both(body)
        (choice,) = whole.ok["choices"]
        logprobs = choice["logprobs"]
        assert choice["text"] == body["prompt"]
        assert choice["finish_reason"] == "length"
        _check_scores(logprobs, case)
        assert whole.json["usage"]["completion_tokens"] == 0
        assert whole.json["usage"]["prompt_tokens"] == 3
        parts = [part for chunk in streamed.chunks for part in chunk["choices"]]
        assert "".join(part["text"] for part in parts) == body["prompt"]
        _check_scores(next(part["logprobs"] for part in parts if part["logprobs"]), case)
        chat = {"model": "local/x", "messages": [{"role": "user", "content": "hi"}]}
        refused = await stage.post({**chat, "max_tokens": 0}, "/v1/chat/completions")
        assert (refused.status, refused.error["param"]) == (400, "max_tokens")
        local.says("!")
        assert message_of((await stage.post(chat, "/v1/chat/completions")).ok).content == "!"


def _check_scores(logprobs: dict[str, Any], case: Case) -> None:
    assert logprobs["tokens"] == case.engine["prompt_tokens"]
    assert "".join(logprobs["tokens"]) == case.body["prompt"]
    first, *rest = logprobs["token_logprobs"]
    assert first is None
    assert rest == [-0.5, -0.5]
    assert logprobs["text_offset"] == [0, 6, 7]
    assert logprobs["top_logprobs"][0] is None
    assert all(1 <= len(entry) <= 2 for entry in logprobs["top_logprobs"][1:])


CHECKS = {
    "LP-01": _lp_01,
    "LP-02": _lp_02,
    "LP-02/completions": _lp_02_completions,
    "LP-03": _lp_03,
    "EC-01": _ec_01,
}
