"""Answers in the background: their life, who may stop it, and readers that come, go and come back."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import openai
import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.event import listen, remove

from adapters.canonical.errors import UpstreamInternal
from adapters.canonical.events import (
    ChoiceFinished,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from providers.base import Batch
from providers.testing.scripted import ScriptedProvider, Step
from tests.adapters.openai.responses.event_order import check_events, events_in
from tests.gateway.server.running import HELLO, Running, error_of, running, text, until
from tests.gateway.server.stateful.responding import ONE_TRY, body, client

pytestmark = pytest.mark.timeout(60)
TURN: list[Batch] = [
    [ReasoningDelta(0, 0, "hm")],
    [TextDelta(0, 1, "Let me"), TextDelta(0, 1, " look.")],
    [ToolCallStarted(0, 2, "call_1", "f"), ToolArgumentsDelta(0, 2, "{}"), ToolCallFinished(0, 2)],
    [ChoiceFinished(0, StopReason.TOOL_CALLS), UsageReported(Usage(prompt_tokens=9, completion_tokens=5))],
]
LAST = ("response.completed", "response.incomplete", "response.failed")


async def started(gateway: Running, **fields: Any) -> dict[str, Any]:
    """The response as its creation shows it."""
    async with gateway.post(body(background=True, **fields), "/v1/responses") as answer:
        assert answer.status == 200
        found: dict[str, Any] = await answer.json()
        return found


async def shown(gateway: Running, response_id: str) -> dict[str, Any]:
    async with gateway.session.get(f"{gateway.url}/v1/responses/{response_id}") as answer:
        assert answer.status == 200
        found: dict[str, Any] = await answer.json()
        return found


async def ended(gateway: Running, response_id: str) -> dict[str, Any]:
    """The response once it is final."""
    check_events(await replayed(gateway, response_id))
    return await shown(gateway, response_id)


async def cancelled(gateway: Running, response_id: str) -> dict[str, Any]:
    async with gateway.session.post(f"{gateway.url}/v1/responses/{response_id}/cancel") as answer:
        assert answer.status == 200
        found: dict[str, Any] = await answer.json()
        return found


def reading(gateway: Running, response_id: str, after: int | None = None) -> "aiohttp.client._RequestContextManager":
    place = "" if after is None else f"&starting_after={after}"
    return gateway.session.get(f"{gateway.url}/v1/responses/{response_id}?stream=true{place}")


async def replayed(gateway: Running, response_id: str, after: int | None = None) -> list[dict[str, Any]]:
    """All events up to the end."""
    async with reading(gateway, response_id, after) as answer:
        assert answer.status == 200
        return events_in(await answer.read())


async def events_of(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.content:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


@asynccontextmanager
async def stream_of(gateway: Running, **fields: Any) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The events of a new background response; leaving the block drops the connection."""
    async with gateway.post(body(background=True, stream=True, **fields), "/v1/responses") as answer:
        assert answer.status == 200
        yield events_of(answer)
        answer.close()


async def error_for(gateway: Running, method: str, path: str, **options: Any) -> tuple[int, dict[str, object]]:
    async with gateway.session.request(method, f"{gateway.url}/v1/responses{path}", **options) as answer:
        return answer.status, await error_of(answer)


async def test_61_background_needs_a_store_and_returns_at_once() -> None:
    hang = asyncio.Event()
    async with running(ScriptedProvider("fake", [hang, *HELLO])) as gateway:
        status, error = await error_for(gateway, "POST", "", json=body(background=True, store=False))
        assert (status, error["param"]) == (400, "background")
        made = await started(gateway)
        assert (made["status"], made["background"], made["output"]) == ("queued", True, [])
        hang.set()
        found = await ended(gateway, made["id"])
        assert found["status"] == "completed"
        assert found["output"][0]["content"][0]["text"] == "Hello there"


@pytest.mark.parametrize("count", range(24))
async def test_62_a_client_that_drops_anywhere_comes_back_without_a_gap_or_a_repeat(count: int) -> None:
    async with running(ScriptedProvider("fake", TURN)) as gateway:
        seen: list[dict[str, Any]] = []
        async with stream_of(gateway) as events:
            async for event in events:
                seen.append(event)
                if len(seen) > count:
                    break
        response_id = seen[0]["response"]["id"]
        after = seen[-1]["sequence_number"]
        seen += await replayed(gateway, response_id, after)
        assert check_events(seen) == await shown(gateway, response_id)
        assert await replayed(gateway, response_id) == seen


async def test_62_many_readers_follow_live_from_wherever_they_are() -> None:
    gates = [asyncio.Event() for _ in range(4)]
    script = [step for gate, batch in zip(gates, TURN, strict=True) for step in (gate, batch)]
    async with running(ScriptedProvider("fake", script)) as gateway:
        made = await started(gateway, stream=False)
        readers = [asyncio.ensure_future(replayed(gateway, made["id"], after)) for after in (None, 0, 1, 2)]
        for gate in gates:
            gate.set()
            await asyncio.sleep(0)
        found = await asyncio.gather(*readers)
        whole = found[0]
        check_events(whole)
        assert [len(events) for events in found] == [len(whole) - skipped for skipped in (0, 1, 2, 3)]
        assert all(events == whole[-len(events) :] for events in found)


async def test_62_a_stream_outlives_its_client_and_a_slow_reader_holds_up_nobody() -> None:
    words: list[Batch] = [text("word ") for _ in range(3000)]
    script: list[Batch] = [*words, [ChoiceFinished(0, StopReason.STOP)]]
    async with running(ScriptedProvider("fake", script)) as gateway:
        async with stream_of(gateway) as events:
            response_id = (await anext(events))["response"]["id"]
        async with reading(gateway, response_id, 0) as slow:
            assert (await ended(gateway, response_id))["status"] == "completed"
            late = [event async for event in events_of(slow)]
        assert [event["sequence_number"] for event in late] == list(range(1, len(late) + 1))
        assert len(late) > 3000


async def test_63_the_sdk_resumes_from_the_beginning_and_skips_what_it_has_seen() -> None:
    async with running(ScriptedProvider("fake", TURN)) as gateway, client(gateway) as sdk:
        made = await sdk.responses.create(model="fake/m", input="hi", background=True, stream=True)
        seen = [event async for event in made]
        first = seen[0]
        assert first.type == "response.created"
        async with sdk.responses.stream(response_id=first.response.id, starting_after=4) as stream:
            again = [event async for event in stream]
            final = await stream.get_final_response()
        assert [event.sequence_number for event in again] == [event.sequence_number for event in seen[5:]]
        assert final.output_text == "Let me look."
        resumed = await sdk.responses.retrieve(first.response.id, stream=True, starting_after=4)
        assert [event.sequence_number async for event in resumed] == list(range(5, len(seen)))


@pytest.mark.parametrize("how", ["failed", "cancelled", "incomplete", "completed"])
async def test_64_a_reader_ends_however_the_response_ends(how: str) -> None:
    gate, hang = asyncio.Event(), asyncio.Event()
    ends: dict[str, list[Step]] = {
        "failed": [UpstreamInternal("broken")],
        "cancelled": [hang],
        "incomplete": [[ChoiceFinished(0, StopReason.LENGTH)]],
        "completed": [[ChoiceFinished(0, StopReason.STOP)]],
    }
    provider = ScriptedProvider("fake", [text("a"), gate, *ends[how]])
    async with running(provider, extra=ONE_TRY) as gateway:
        made = await started(gateway)
        live = asyncio.ensure_future(replayed(gateway, made["id"]))
        await provider.waiting.wait()
        gate.set()
        if how == "cancelled":
            await cancelled(gateway, made["id"])
        events = await live
        assert check_events(events)["status"] == how
        assert await replayed(gateway, made["id"]) == events
        assert check_events(events) == await shown(gateway, made["id"])
        assert await replayed(gateway, made["id"], len(events) - 1) == []
        assert await replayed(gateway, made["id"], 10**9) == []


async def test_65_a_cancelled_response_stops_the_provider_and_stays_cancelled() -> None:
    hang = asyncio.Event()
    provider = ScriptedProvider("fake", [text("par"), hang, text("tial")])
    async with running(provider) as gateway:
        made = await started(gateway)
        await provider.waiting.wait()
        found = await cancelled(gateway, made["id"])
        assert (found["status"], found["error"]) == ("cancelled", None)
        assert provider.open_streams == 0
        assert await cancelled(gateway, made["id"]) == found
        hang.set()
        assert await shown(gateway, made["id"]) == found


async def test_65_one_that_waits_for_its_turn_never_starts_once_it_is_cancelled() -> None:
    hang = asyncio.Event()
    provider = ScriptedProvider("fake", [hang, *HELLO])
    async with running(provider, extra="responses: {background: {parallel: 1}}\n") as gateway:
        first = await started(gateway)
        await provider.waiting.wait()
        second = await started(gateway)
        assert (await cancelled(gateway, second["id"]))["status"] == "cancelled"
        assert [event["type"] for event in await replayed(gateway, second["id"])] == [
            "response.created",
            "response.queued",
            "response.failed",
        ]
        hang.set()
        assert (await ended(gateway, first["id"]))["status"] == "completed"
    assert len(provider.requests) == 1


async def test_66_cancel_leaves_what_is_finished_as_it_is_and_is_for_the_background_alone() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        made = await started(gateway)
        found = await ended(gateway, made["id"])
        assert await cancelled(gateway, made["id"]) == found
        at_once = await sdk.responses.create(model="fake/m", input="hi")
        with pytest.raises(openai.BadRequestError, match="background"):
            await sdk.responses.cancel(at_once.id)
        with pytest.raises(openai.NotFoundError):
            await sdk.responses.cancel("resp_nowhere")
        status, error = await error_for(gateway, "GET", f"/{at_once.id}?stream=true")
        assert (status, error["param"]) == (400, "stream")


async def test_56_a_response_that_is_not_finished_has_no_followers() -> None:
    hang = asyncio.Event()
    provider = ScriptedProvider("fake", [hang, *HELLO])
    async with running(provider) as gateway:
        made = await started(gateway)
        await provider.waiting.wait()
        status, error = await error_for(gateway, "POST", "", json=body(previous_response_id=made["id"]))
        assert (status, error["param"]) == (400, "previous_response_id")
        hang.set()
        await ended(gateway, made["id"])
        async with gateway.post(body(previous_response_id=made["id"]), "/v1/responses") as answer:
            assert answer.status == 200


async def test_68_deleting_one_that_runs_stops_it() -> None:
    hang = asyncio.Event()
    provider = ScriptedProvider("fake", [text("a"), hang])
    async with running(provider) as gateway:
        made = await started(gateway)
        await provider.waiting.wait()
        reader = asyncio.ensure_future(replayed(gateway, made["id"]))
        await asyncio.sleep(0)
        async with gateway.session.delete(f"{gateway.url}/v1/responses/{made['id']}") as answer:
            assert answer.status == 200
        assert provider.open_streams == 0
        assert check_events(await reader)["status"] == "cancelled"
        assert (await error_for(gateway, "DELETE", f"/{made['id']}"))[0] == 404
        assert (await error_for(gateway, "GET", f"/{made['id']}"))[0] == 404


async def test_what_may_wait_is_bounded() -> None:
    hang = asyncio.Event()
    provider = ScriptedProvider("fake", [hang, *HELLO])
    limits = "responses: {background: {parallel: 2, queue: 3}}\n"
    async with running(provider, extra=limits) as gateway:
        made = [await started(gateway) for _ in range(5)]
        status, error = await error_for(gateway, "POST", "", json=body(background=True))
        assert (status, error["code"]) == (429, "queue_full")
        await until(lambda: provider.open_streams == 2)
        hang.set()
        for one in made:
            assert (await ended(gateway, one["id"]))["status"] == "completed"
        await started(gateway)


async def _race(gateway: Running, provider: ScriptedProvider, delay: int) -> str:
    """A cancel after so many turns of the loop; how it ended. Everything agrees on it."""
    made = await started(gateway)
    reader = asyncio.ensure_future(replayed(gateway, made["id"]))
    for _ in range(delay):
        await asyncio.sleep(0)
    found = await cancelled(gateway, made["id"])
    events = await reader
    assert check_events(events) == found == await shown(gateway, made["id"])
    assert sum(event["type"] in LAST for event in events) == 1
    assert await replayed(gateway, made["id"]) == events
    assert provider.open_streams == 0
    status: str = found["status"]
    assert found["usage"] is None or status == "completed"
    return status


@pytest.mark.parametrize("times", [50, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
async def test_67_a_cancel_that_races_the_end_leaves_one_state(times: int) -> None:
    ready = asyncio.Event()  # waiting for it gives others a turn
    ready.set()
    turns = itertools.cycle(range(0, 61, 4))

    def paced(request: Request) -> Iterator[Step]:
        pause = next(turns)
        for batch in [text("a"), text("b"), *TURN]:
            yield from [ready] * pause
            yield batch

    provider = ScriptedProvider("fake", paced)
    async with running(provider) as gateway:
        before = asyncio.all_tasks()
        found = {await _race(gateway, provider, number % 37) for number in range(times)}
        await until(lambda: not {task for task in asyncio.all_tasks() - before if "_make" in repr(task)})
    assert found == {"cancelled", "completed"}


async def test_a_gateway_that_stops_fails_what_is_not_finished() -> None:
    hang = asyncio.Event()
    provider = ScriptedProvider("fake", [text("par"), hang])
    async with running(provider, extra="responses: {background: {parallel: 1}}\n") as gateway:
        made = [await started(gateway) for _ in range(2)]
        await provider.waiting.wait()
        async with reading(gateway, made[0]["id"]) as first, reading(gateway, made[1]["id"]) as second:
            await gateway.app.drain(0)
            for reader in (first, second):
                found = check_events(events_in(await reader.read()))
                assert (found["status"], found["error"]["type"]) == ("failed", "gateway_stopped")
        assert provider.open_streams == 0


async def test_a_fault_of_the_gateway_itself_fails_the_response_and_says_nothing_of_it() -> None:
    def broken(request: Request) -> Iterator[Step]:
        yield text("a")
        raise ZeroDivisionError("secret")

    async with running(ScriptedProvider("fake", broken)) as gateway:
        found = await ended(gateway, (await started(gateway))["id"])
        assert found["status"] == "failed"
        assert "secret" not in json.dumps(found)
        assert any(line["event"] == "internal_error" for line in gateway.lines())


@contextmanager
def counting_commits() -> Iterator[list[None]]:
    """One item for each commit, in whichever database."""
    commits: list[None] = []

    def committed(connection: Connection) -> None:
        commits.append(None)

    listen(Engine, "commit", committed)
    try:
        yield commits
    finally:
        remove(Engine, "commit", committed)


async def test_many_at_one_time_share_their_commits() -> None:
    def counted(request: Request) -> Iterator[Step]:
        return itertools.chain([text(f"{number} ") for number in range(100)], [[ChoiceFinished(0, StopReason.STOP)]])

    async with running(ScriptedProvider("fake", counted)) as gateway:
        with counting_commits() as commits:
            made = [await started(gateway) for _ in range(20)]
            for one in made:
                found = await ended(gateway, one["id"])
                assert found["output"][0]["content"][0]["text"] == "".join(f"{number} " for number in range(100))
        assert 0 < len(commits) < 20 * 100 / 4
