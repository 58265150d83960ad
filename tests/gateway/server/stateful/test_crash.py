"""A gateway that is killed in the middle of its work, and what the next one finds."""

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from providers.testing.scripted import ScriptedProvider
from tests.adapters.openai.responses.event_order import check_events
from tests.gateway.server.running import HELLO, Running, running
from tests.gateway.server.stateful.endless import STORAGE
from tests.gateway.server.stateful.responding import body
from tests.gateway.server.stateful.test_background import ended, events_of, reading, replayed, shown

pytestmark = pytest.mark.timeout(120)
BEGUN = 3


async def _start(session: aiohttp.ClientSession, url: str, **fields: Any) -> dict[str, Any]:
    async with session.post(f"{url}/v1/responses", json=body(background=True, **fields)) as answer:
        assert answer.status == 200
        found: dict[str, Any] = await answer.json()
        return found


async def _finished(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """A response that is whole before the kill."""
    made = await _start(session, url, input="short")
    async with session.get(f"{url}/v1/responses/{made['id']}?stream=true") as answer:
        await answer.read()
    async with session.get(f"{url}/v1/responses/{made['id']}") as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def _seen_until_killed(path: Path, count: int) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    """A response that was whole, the events of one that was not, and the ids of others that had begun."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.gateway.server.stateful.endless",
        f"sqlite:///{path}",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(await process.stdout.readline())}"
        async with aiohttp.ClientSession() as session:
            whole = await _finished(session, url)
            others = [(await _start(session, url))["id"] for _ in range(BEGUN)]
            seen: list[dict[str, Any]] = []
            asked = body(background=True, stream=True)
            async with session.post(f"{url}/v1/responses", json=asked) as answer:
                async for event in events_of(answer):
                    seen.append(event)
                    if len(seen) == count:
                        break
                process.kill()
                answer.close()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    return whole, seen, others


async def _check_failed(gateway: Running, response_id: str) -> list[dict[str, Any]]:
    events = await replayed(gateway, response_id)
    found = check_events(events)
    assert found == await shown(gateway, response_id)
    assert (found["status"], found["error"]["type"]) == ("failed", "gateway_stopped")
    assert "stopped" in found["error"]["message"]
    return events


@pytest.mark.parametrize("times", [3, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
async def test_69_after_a_kill_what_was_whole_is_whole_and_what_was_not_has_failed(tmp_path: Path, times: int) -> None:
    chance = random.Random(7)
    path = tmp_path / "gateway.db"
    for _ in range(times):
        whole, seen, others = await _seen_until_killed(path, chance.randint(1, 400))
        async with running(ScriptedProvider("fake", HELLO), extra=STORAGE.format(f"sqlite:///{path}")) as gateway:
            assert await shown(gateway, whole["id"]) == whole
            check_events(await replayed(gateway, whole["id"]))
            events = await _check_failed(gateway, seen[0]["response"]["id"])
            assert events[: len(seen)] == seen  # what a client saw was in the log
            for response_id in others:
                await _check_failed(gateway, response_id)
            made = await _start(gateway.session, gateway.url, previous_response_id=whole["id"])
            assert (await ended(gateway, made["id"]))["status"] == "completed"


async def test_a_gateway_beside_another_one_leaves_its_work_alone(tmp_path: Path) -> None:
    hang = asyncio.Event()
    extra = STORAGE.format(f"sqlite:///{tmp_path / 'gateway.db'}")
    provider = ScriptedProvider("fake", [hang, *HELLO])
    async with running(provider, extra=extra) as first:
        made = await _start(first.session, first.url)
        async with reading(first, made["id"], 1) as answer:
            await anext(events_of(answer))  # it is being made
        async with running(ScriptedProvider("fake", HELLO), extra=extra) as second:
            assert (await shown(second, made["id"]))["status"] == "in_progress"
        hang.set()
        assert (await ended(first, made["id"]))["status"] == "completed"
