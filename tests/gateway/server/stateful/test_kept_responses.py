"""Responses that are kept: what comes back, for whom, and what follows on them. The official SDK is the client."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from adapters.canonical.events import (
    ChoiceFinished,
    ReasoningDelta,
    ReasoningFinished,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import Message, Reasoning, Text, ToolCall, ToolResult
from adapters.canonical.request import EXPRESSIBLE_FIELDS
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from providers.base import Batch, Capabilities
from providers.testing.scripted import ScriptedProvider
from tests.adapters.openai.responses.event_order import checked, events_in
from tests.gateway.server.running import HELLO, Running, error_of, running, text
from tests.gateway.server.stateful.responding import KEYS, ONE_TRY, answers, body, client

pytestmark = pytest.mark.timeout(60)
ALL = Capabilities(
    fields=EXPRESSIBLE_FIELDS,
    parts=frozenset((Text, Reasoning, ToolCall, ToolResult)),
    tool_kinds=frozenset(("function", "custom")),
)
TURN: list[Batch] = [
    [Started()],
    [ReasoningDelta(0, 0, "hm"), ReasoningFinished(0, 0, signature="SIG", origin="fake")],
    [TextDelta(0, 1, "Let me"), TextDelta(0, 1, " look.")],
    [ToolCallStarted(0, 2, "call_1", "f"), ToolArgumentsDelta(0, 2, "{}"), ToolCallFinished(0, 2)],
    [ChoiceFinished(0, StopReason.TOOL_CALLS), UsageReported(Usage(prompt_tokens=9, completion_tokens=5))],
]
TOOL: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}


def user(said: str) -> Message:
    return Message(role="user", parts=(Text(text=said),))


def assistant(said: str) -> Message:
    return Message(role="assistant", parts=(Text(text=said),))


async def whole(gateway: Running, path: str, **options: Any) -> Any:
    async with gateway.session.get(gateway.url + path, **options) as answer:
        assert answer.status == 200
        return await answer.json()


async def refused(gateway: Running, method: str, path: str, **options: Any) -> tuple[int, dict[str, object]]:
    async with gateway.session.request(method, gateway.url + path, **options) as answer:
        return answer.status, await error_of(answer)


async def test_47_the_last_event_holds_what_is_retrieved_later() -> None:
    async with running(ScriptedProvider("fake", TURN, capabilities=ALL)) as gateway:
        async with gateway.post(body(stream=True, tools=[TOOL]), "/v1/responses") as answer:
            final = checked(await answer.read())
        assert await whole(gateway, f"/v1/responses/{final['id']}") == final
        async with gateway.post(body(tools=[TOOL]), "/v1/responses") as answer:
            found = await answer.json()
        assert await whole(gateway, f"/v1/responses/{found['id']}") == found


async def test_47_a_response_that_was_cut_or_failed_is_kept_as_such() -> None:
    cut: list[Batch] = [[TextDelta(0, 0, "word"), ChoiceFinished(0, StopReason.LENGTH)]]
    provider = ScriptedProvider("fake", cut)
    async with running(provider, extra=ONE_TRY) as gateway:
        for script, status in ((cut, "incomplete"), ([text("par"), RuntimeError("bug")], "failed")):
            provider.play(script)  # type: ignore[arg-type]
            async with gateway.post(body(stream=True), "/v1/responses") as answer:
                final = checked(await answer.read())
            assert final["status"] == status
            assert await whole(gateway, f"/v1/responses/{final['id']}") == final


async def test_the_sdk_retrieves_deletes_and_lists_input() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        made = await sdk.responses.create(model="fake/m", input="hi", metadata={"a": "b"})
        found = await sdk.responses.retrieve(made.id)
        assert found == made
        assert (found.output_text, found.metadata) == ("Hello there", {"a": "b"})
        page = await sdk.responses.input_items.list(made.id)
        (item,) = page.data
        assert (item.type, item.id.partition("_")[0]) == ("message", "msg")
        await sdk.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            await sdk.responses.retrieve(made.id)


async def test_68_a_second_delete_is_a_404() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        made = await sdk.responses.create(model="fake/m", input="hi")
        async with gateway.session.delete(f"{gateway.url}/v1/responses/{made.id}") as answer:
            assert await answer.json() == {"id": made.id, "object": "response", "deleted": True}
        status, error = await refused(gateway, "DELETE", f"/v1/responses/{made.id}")
        assert (status, error["code"]) == (404, "response_not_found")
        assert (await refused(gateway, "GET", f"/v1/responses/{made.id}/input_items"))[0] == 404


async def test_another_keys_response_is_not_there() -> None:
    ann, bob = {"authorization": "Bearer s-ann"}, {"authorization": "Bearer s-bob"}
    async with running(ScriptedProvider("fake", HELLO), extra=KEYS) as gateway:
        async with gateway.post(body(background=True), "/v1/responses", headers=ann) as answer:
            path = f"/v1/responses/{(await answer.json())['id']}"
        for method, rest in (("GET", ""), ("GET", "/input_items"), ("GET", "?stream=true"), ("POST", "/cancel")):
            assert (await refused(gateway, method, path + rest, headers=bob))[0] == 404
        asked = body(previous_response_id=path.rpartition("/")[2])
        assert (await refused(gateway, "POST", "/v1/responses", json=asked, headers=bob))[0] == 404
        reference = body(input=[{"type": "item_reference", "id": (await _first_item(gateway, path, ann))}])
        status, error = await refused(gateway, "POST", "/v1/responses", json=reference, headers=bob)
        assert (status, error["param"]) == (400, "input[0]")
        assert (await refused(gateway, "DELETE", path, headers=bob))[0] == 404
        assert (await whole(gateway, path, headers=ann))["object"] == "response"


async def _first_item(gateway: Running, path: str, headers: dict[str, str]) -> str:
    item_id: str = (await whole(gateway, f"{path}/input_items", headers=headers))["first_id"]
    return item_id


async def test_55_what_came_before_is_there_again_but_not_its_instructions_and_not_its_other_children() -> None:
    provider = ScriptedProvider("fake", answers("one"), answers("two"), answers("other"), answers("three"))
    async with running(provider) as gateway, client(gateway) as sdk:
        ask = sdk.responses.create
        first = await ask(model="fake/m", input="a", instructions="be brief")
        second = await ask(model="fake/m", input="b", previous_response_id=first.id)
        await ask(model="fake/m", input="x", previous_response_id=first.id)
        third = await ask(model="fake/m", input="c", previous_response_id=second.id, instructions="be long")
    assert third.previous_response_id == second.id
    assert provider.requests[1].messages == (user("a"), assistant("one"), user("b"))
    assert provider.requests[3].messages == (
        Message(role="system", parts=(Text(text="be long"),)),
        *(user("a"), assistant("one"), user("b"), assistant("two"), user("c")),
    )


async def test_53_reasoning_and_calls_come_back_with_the_response_that_follows() -> None:
    provider = ScriptedProvider("fake", TURN, answers("done"), capabilities=ALL)
    async with running(provider) as gateway, client(gateway) as sdk:
        first = await sdk.responses.create(model="fake/m", input="hi", tools=[TOOL])
        reasoning = first.output[0]
        assert reasoning.type == "reasoning"
        assert reasoning.encrypted_content is None
        output: Any = {"type": "function_call_output", "call_id": "call_1", "output": "15"}
        await sdk.responses.create(model="fake/m", input=[output], previous_response_id=first.id, tools=[TOOL])
        shown = await sdk.responses.retrieve(first.id, include=["reasoning.encrypted_content"])
    assert (provider.requests[1].messages or ())[1:] == (
        Message(
            role="assistant",
            parts=(
                Reasoning(text="hm", signature="SIG", origin="fake"),
                Text(text="Let me look."),
                ToolCall(id="call_1", name="f", arguments="{}"),
            ),
        ),
        Message(role="tool", parts=(ToolResult(call_id="call_1", parts=(Text(text="15"),)),)),
    )
    assert (shown.output[0].encrypted_content or "").startswith("gws1.kept.")  # type: ignore[union-attr]


async def test_55_a_response_that_is_not_kept_is_nowhere() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        made = await sdk.responses.create(model="fake/m", input="hi", store=False)
        with pytest.raises(openai.NotFoundError):
            await sdk.responses.retrieve(made.id)
        for previous in (made.id, "resp_nowhere"):
            with pytest.raises(openai.NotFoundError) as caught:
                await sdk.responses.create(model="fake/m", input="hi", previous_response_id=previous)
            assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_55_a_chain_that_lost_its_beginning_says_what_is_missing() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        first = await sdk.responses.create(model="fake/m", input="a")
        second = await sdk.responses.create(model="fake/m", input="b", previous_response_id=first.id)
        await sdk.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError, match=first.id):
            await sdk.responses.create(model="fake/m", input="c", previous_response_id=second.id)


async def test_57_a_previous_response_and_a_conversation_do_not_go_together() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        asked = body(previous_response_id="resp_1", conversation="conv_1")
        status, error = await refused(gateway, "POST", "/v1/responses", json=asked)
        assert (status, error["param"]) == (400, "previous_response_id")


async def test_60_input_items_are_the_requests_own_newest_first_in_pages() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        first = await sdk.responses.create(model="fake/m", input="before")
        said: Any = [{"role": "user", "content": f"n{number}"} for number in range(5)]
        made = await sdk.responses.create(model="fake/m", input=said, previous_response_id=first.id)

        async def texts(**options: Any) -> list[str]:
            found = [item async for item in sdk.responses.input_items.list(made.id, **options)]
            return [item.to_dict()["content"][0]["text"] for item in found]  # type: ignore[index]

        newest = [f"n{number}" for number in (4, 3, 2, 1, 0)]
        assert await texts() == newest
        assert await texts(limit=2) == newest
        assert await texts(order="asc", limit=3) == newest[::-1]
        page = await sdk.responses.input_items.list(made.id, limit=2)
        assert page.has_more
        rest = await sdk.responses.input_items.list(made.id, after=page.data[-1].id)
        assert len(rest.data) == 3
        assert not rest.has_more
        for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=nowhere", "include=x"):
            status, error = await refused(gateway, "GET", f"/v1/responses/{made.id}/input_items?{query}")
            assert (status, error["param"]) == (400, query.partition("=")[0])


async def test_an_item_reference_stands_for_its_item() -> None:
    provider = ScriptedProvider("fake", answers("one"), answers("two"))
    async with running(provider) as gateway, client(gateway) as sdk:
        first = await sdk.responses.create(model="fake/m", input="a")
        given = (await sdk.responses.input_items.list(first.id)).data[0].id
        made = first.output[0].id or ""
        references: Any = [{"type": "item_reference", "id": given}, {"id": made}, {"role": "user", "content": "b"}]
        second = await sdk.responses.create(model="fake/m", input=references)
        kept = (await sdk.responses.input_items.list(second.id, order="asc")).data
        status, error = await refused(gateway, "POST", "/v1/responses", json=body(input=[{"id": "msg_nowhere"}]))
    assert provider.requests[1].messages == (user("a"), assistant("one"), user("b"))
    assert [item.type for item in kept] == ["message"] * 3
    assert (status, error["param"], error["code"]) == (400, "input[0]", "item_not_found")


async def test_unknown_paths_and_methods_below_a_response_are_told_apart() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        for method, path, status in (
            ("GET", "/v1/responses/r/other", 404),
            ("GET", "/v1/responses/r/cancel", 405),
            ("POST", "/v1/responses/r", 405),
            ("POST", "/v1/responses/r/input_items", 405),
            ("DELETE", "/v1/responses/r/input_items", 405),
            ("PUT", "/v1/responses/r", 405),
            ("GET", "/v1/responses/r", 404),
        ):
            assert (await refused(gateway, method, path))[0] == status


async def test_the_synchronous_sdk_works_as_well() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:

        def use() -> tuple[Response, Response, int]:
            with openai.OpenAI(base_url=gateway.url + "/v1", api_key="any", max_retries=0) as sdk:
                made = sdk.responses.create(model="fake/m", input="hi")
                found = sdk.responses.retrieve(made.id)
                items = sdk.responses.input_items.list(made.id).data
                sdk.responses.delete(made.id)
                return made, found, len(items)

        made, found, count = await asyncio.to_thread(use)
    assert made == found
    assert count == 1


async def test_what_fails_before_its_first_output_is_not_kept() -> None:
    provider = ScriptedProvider("fake", [RuntimeError("bug")])
    async with running(provider, extra=ONE_TRY) as gateway:
        async with gateway.post(body(), "/v1/responses") as answer:
            assert answer.status == 500
            request_id = answer.headers["x-request-id"]
        assert (await refused(gateway, "GET", f"/v1/responses/resp_{request_id.removeprefix('req_')}"))[0] == 404


async def test_without_its_database_the_gateway_serves_what_needs_none_and_says_so_for_the_rest() -> None:
    extra = "storage: {url: 'postgresql://u:secret@127.0.0.1:1/d'}\n"
    async with running(ScriptedProvider("fake", HELLO), extra=extra) as gateway:
        async with gateway.post(body(store=False), "/v1/responses") as answer:
            assert answer.status == 200
        status, error = await refused(gateway, "GET", "/v1/responses/resp_1")
        assert (status, error["code"]) == (503, "storage_unavailable")
        status, error = await refused(gateway, "POST", "/v1/responses", json=body(background=True))
        assert (status, error["code"]) == (503, "storage_unavailable")
        async with gateway.post(body(stream=True), "/v1/responses") as answer:
            events = events_in(await answer.read())
        assert (events[-1]["type"], events[-1]["code"]) == ("error", "storage_unavailable")
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        reasons = {str(line["reason"]) for line in gateway.lines() if line["event"] == "storage_failed"}
        assert len(reasons) == 1
        assert "Connection refused" in reasons.pop()
        assert not [line for line in gateway.lines() if line["event"] == "internal_error"]
        assert "secret" not in str(gateway.lines())


async def test_a_file_that_cannot_be_made_is_named_in_the_log_and_ends_a_stream_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where its folder should be")
    path = tmp_path / "data" / "gateway.db"
    async with running(ScriptedProvider("fake", HELLO), extra=f"storage: {{url: 'sqlite:///{path}'}}\n") as gateway:
        status, error = await refused(gateway, "POST", "/v1/responses", json=body())
        assert (status, error["code"]) == (503, "storage_unavailable")
        assert str(path) not in str(error)
        async with gateway.post(body(stream=True), "/v1/responses") as answer:
            events = events_in(await answer.read())
        assert (events[-1]["type"], events[-1]["code"]) == ("error", "storage_unavailable")
        reasons = [str(line["reason"]) for line in gateway.lines() if line["event"] == "storage_failed"]
        assert reasons
        assert all(reason.startswith(f"{path}: ") for reason in reasons)


async def test_a_stream_whose_answer_cannot_be_kept_for_a_fault_of_ours_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_GATEWAY_DATA", str(tmp_path))
    async with running(ScriptedProvider("fake", HELLO), extra="# no storage: that of the data folder\n") as gateway:
        with closing(sqlite3.connect(tmp_path / "gateway.db")) as database:  # by another version, after the start
            database.execute("create table alembic_version (version_num text)")
            database.execute("insert into alembic_version values ('9999')")
            database.commit()
        async with gateway.post(body(stream=True), "/v1/responses") as answer:
            events = events_in(await answer.read())
        assert events[-1]["type"] == "error"
        assert "SchemaMismatch" in str(gateway.lines())


def test_a_gateway_that_keeps_nothing_never_loads_the_database_code() -> None:
    script = """
import asyncio, sys
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, chat, running

async def main():
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        asked = {"model": "fake/m", "input": "hi", "store": False}
        for path, body in (("/v1/responses", asked), ("/v1/chat/completions", chat())):
            async with gateway.post(body, path) as answer:
                assert answer.status == 200
        assert "sqlalchemy" not in sys.modules
        async with gateway.post({**asked, "store": True}, "/v1/responses") as answer:
            assert answer.status == 200
        assert "sqlalchemy" in sys.modules

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
