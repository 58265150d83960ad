"""The Responses API: its events, its input, its state; and reasoning that a later turn must bring back."""

import json
from typing import Any

from tests.cases.case import Case
from tests.cases.responses_stream import final_response
from tests.cases.stage import Local, staged
from tests.mock_upstream import Answer

__all__ = ["CHECKS"]

_CHAT_ANSWER = json.dumps(
    {"id": "c1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}
).encode()
_RESPONSES_ANSWER = json.dumps({"id": "resp_1", "status": "completed", "model": "m", "output": []}).encode()


async def _rp_01(case: Case) -> None:
    async with staged(case) as stage:
        reply = await stage.post()
        assert [name for name, _ in reply.events] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
        final = final_response(reply.events)
        assert final["status"] == "completed"
        assert final["output"][0]["content"][0]["text"] == "hello"
        assert reply.frames[-1] == "[DONE]"


async def _rp_02(case: Case) -> None:
    local = Local()
    local.says("ok")
    async with staged(case, local=local) as stage:
        (await stage.post()).ok  # noqa: B018
        assert local.prompt() == (
            "user: hi\nassistant: hello\nassistant: again\nassistant: no type, no id\nuser: bye\nassistant:"
        )
        body = case.body
        body["input"][3]["content"][0]["type"] = "nonsense"
        refused = await stage.post(body)
        assert (refused.status, refused.error["param"]) == (400, "input[3].content[0].type")
        assert len(refused.body) < 1000


async def _rp_03(case: Case) -> None:
    keys = [{"id": name, "secret": f"secret-of-{name}", "models": ["*"]} for name in ("ann", "bob")]
    ann, bob = ({"authorization": f"Bearer secret-of-{name}"} for name in ("ann", "bob"))
    local = Local()
    local.says(*case.engine["pieces"])
    async with staged(case, local=local, config={"auth": {"keys": keys}}) as stage:
        created = (await stage.post(headers=ann)).ok
        assert created["background"] is False
        cancel = f"/v1/responses/{created['id']}/cancel"
        refused = await stage.post({}, cancel, headers=ann)
        assert (refused.status, refused.error["type"]) == (400, "invalid_request_error")
        assert (await stage.post({}, "/v1/responses/resp_nowhere/cancel", headers=ann)).error["code"] != "unknown_url"
        assert (await stage.post({}, "/v1/responses/resp_nowhere/cancel", headers=ann)).status == 404
        assert (await stage.post({}, cancel, headers=bob)).status == 404


async def _rp_04(case: Case) -> None:
    local = Local()
    local.says(*["word "] * 16, finish="length")
    async with staged(case, local=local) as stage:
        streamed, whole = await stage.both(case.body)
        assert streamed.events[-1][0] == "response.incomplete"
        final = final_response(streamed.events)
        for response in (final, whole.ok):
            assert response["status"] == "incomplete"
            assert response["incomplete_details"] == {"reason": "max_output_tokens"}
            (item,) = response["output"]
            assert item["status"] == "incomplete"
            assert item["content"][0]["text"] == "word " * 16
        changing = ("id", "created_at", "completed_at", "output")
        assert {name: value for name, value in final.items() if name not in changing} == {
            name: value for name, value in whole.json.items() if name not in changing
        }


async def _rp_05(case: Case) -> None:
    """Towards a Responses upstream a tool's result is a string."""
    async with staged(case, Answer.json(_RESPONSES_ANSWER)) as stage:
        await stage.post()
        (output,) = [item for item in stage.sent()["input"] if item.get("type") == "function_call_output"]
        assert output["output"] == '{"t":15}'
        assert output["call_id"] == "c1"


async def _rp_05_chat(case: Case) -> None:
    """Towards a chat upstream a list of texts is text, in order."""
    request = case.requests[1]
    async with staged(Case(case.id, {"request": request}), Answer.json(_CHAT_ANSWER)) as stage:
        (await stage.post()).ok  # noqa: B018
        tool = stage.sent()["messages"][-1]
        assert (tool["role"], tool["tool_call_id"]) == ("tool", "c1")
        content = tool["content"]
        assert content == "AB" or [part["text"] for part in content] == ["A", "B"]


async def _rs_02(case: Case) -> None:
    original = case.upstream_json()["content"][0]
    async with staged(case) as stage:
        message = (await stage.post()).ok["choices"][0]["message"]
        assert message["reasoning_content"] == "check"
        call_id = message["tool_calls"][0]["id"]
        result = {"role": "tool", "tool_call_id": call_id, "content": "15"}
        turn_two = case.body_with(messages=[*case.body["messages"], message, result])
        assert (await stage.post(turn_two)).status == 200
        assert stage.sent()["messages"][1]["content"][0] == original
        known = ("role", "content", "tool_calls")
        bare = {name: value for name, value in message.items() if name in known}
        degraded = case.body_with(messages=[*case.body["messages"], bare, result])
        assert (await stage.post(degraded)).status == 200
        # The gateway kept the block by the id of its call; where it had not, thinking is off for that turn.
        assert stage.sent()["messages"][1]["content"][0] == original
        unknown = [{**call, "id": "another"} for call in bare["tool_calls"]]
        forgotten = [*case.body["messages"], {**bare, "tool_calls": unknown}, {**result, "tool_call_id": "another"}]
        assert (await stage.post(case.body_with(messages=forgotten))).status == 200
        assert "thinking" not in stage.sent() or stage.sent()["thinking"]["type"] == "disabled"


async def _ub_01(case: Case) -> None:
    local = Local(max_context=200_000)
    local.says("ok")
    config: dict[str, Any] = {"responses": {"max_gb": 1 / 1024}, "storage": {"url": "memory"}}
    async with staged(case, local=local, config=config) as stage:
        kept = [(await stage.post(case.body_with(input="x" * 100_000))).ok["id"] for _ in range(40)]
        assert (await stage.get(f"/v1/responses/{kept[-1]}")).status == 200
        assert (await stage.get(f"/v1/responses/{kept[0]}")).status == 404
        follow_up = await stage.post(case.body_with(previous_response_id=kept[0]))
        assert follow_up.status == 404
        left = [(await stage.post(case.body_with(store=False))).ok["id"] for _ in range(3)]
        for response_id in left:
            assert (await stage.get(f"/v1/responses/{response_id}")).status == 404


CHECKS = {
    "RP-01": _rp_01,
    "RP-02": _rp_02,
    "RP-03": _rp_03,
    "RP-04": _rp_04,
    "RP-05": _rp_05,
    "RP-05/chat": _rp_05_chat,
    "RS-02": _rs_02,
    "UB-01": _ub_01,
}
