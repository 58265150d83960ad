"""Calls in responses that are kept: in the background, over sockets, in conversations, in later turns."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from adapters.canonical.messages import Message, ToolCall
from providers.testing.scripted import ScriptedProvider
from tests.adapters.openai.responses.event_order import check_events, checked
from tests.gateway.server.running import HELLO, running, until
from tests.gateway.server.stateful.endless import STORAGE
from tests.gateway.server.stateful.responding import body, client
from tests.gateway.tools.asking import (
    ADD,
    SMALL,
    calls,
    kinds,
    made,
    results,
    says,
    shown,
    tools,
)
from tests.gateway.tools.serving import ROOT

pytestmark = pytest.mark.timeout(60)


async def test_in_the_background_calls_are_made_and_kept(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD), says("It is 3."))
    async with running(provider, extra=tools(url)) as gateway, client(gateway) as sdk:
        created = await sdk.responses.create(
            model="fake/m",
            input="hi",
            background=True,
            tools=[SMALL],  # type: ignore[list-item]
        )
        path = f"{gateway.url}/v1/responses/{created.id}?stream=true"
        async with gateway.session.get(path) as answer:
            response = checked(await answer.read())
        assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
        assert await shown(gateway, created.id) == response
        async with gateway.session.get(f"{path}&starting_after=6") as answer:
            events = [json.loads(line[6:]) for line in (await answer.text()).splitlines() if line.startswith("data: {")]
        assert check_events(events, starts_at=7) == response


async def test_a_cancel_ends_a_call_that_runs(url: str) -> None:
    provider = ScriptedProvider("fake", calls(("hang", "{}")), says("never"))
    async with running(provider, extra=tools(url)) as gateway:
        asked = body(background=True, stream=True, tools=[SMALL])
        async with gateway.post(asked, "/v1/responses") as answer:
            async for line in answer.content:
                if line.startswith(b"data:") and b"mcp_call_arguments.done" in line:
                    response_id = "resp_" + json.loads(line[6:])["item_id"].partition("_")[2][:-4]
                    break
        async with gateway.session.post(f"{gateway.url}/v1/responses/{response_id}/cancel") as answer:
            cancelled = await answer.json()
        assert cancelled["status"] == "cancelled"
        assert cancelled["output"][1]["status"] == "incomplete"
        assert await shown(gateway, response_id) == cancelled


async def test_a_client_that_leaves_ends_the_call(url: str) -> None:
    provider = ScriptedProvider("fake", calls(("hang", "{}")), says("never"))
    async with running(provider, extra=tools(url)) as gateway:
        async with gateway.post(body(stream=True, tools=[SMALL]), "/v1/responses") as answer:
            async for line in answer.content:
                if b"mcp_call_arguments.done" in line:
                    break
        await until(lambda: any(line["event"] == "request" for line in gateway.lines()), within_s=3)
        assert len(provider.requests) == 1


async def test_over_a_websocket_calls_are_made_as_well(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD), says("It is 3."))
    async with (
        running(provider, extra=tools(url)) as gateway,
        gateway.session.ws_connect(f"{gateway.url}/v1/responses") as socket,
    ):
        await socket.send_json({"type": "response.create", **body(tools=[SMALL], store=False)})
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] != "response.completed":
            events.append(await socket.receive_json(timeout=10))
    assert kinds(check_events(events)) == ["mcp_list_tools", "mcp_call", "message"]


async def test_a_conversation_keeps_calls_and_lists_tools_once(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD), says("It is 3."), says("Still 3."))
    async with running(provider, extra=tools(url)) as gateway, client(gateway) as sdk:
        conversation = await sdk.conversations.create()
        await made(gateway, conversation=conversation.id, tools=[SMALL])
        again = await made(gateway, conversation=conversation.id, input="sure?", tools=[SMALL])
        assert kinds(again) == ["message"]
        assert results(provider.requests[2]) == [("3", None)]
        items = [item.type async for item in sdk.conversations.items.list(conversation.id, order="asc")]
        assert items == ["message", "mcp_list_tools", "mcp_call", "message", "message", "message"]


async def test_calls_of_earlier_turns_reach_a_model_without_tools_as_calls_and_results(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD), says("It is 3."))
    async with running(provider, extra=tools(url)) as gateway:
        first = await made(gateway, tools=[SMALL])
        await made(gateway, input=[{"role": "user", "content": "hi"}, *first["output"]])
    said = provider.requests[2].messages or ()
    assert _shape(said) == [
        ("user", ["Text"]),
        ("assistant", ["ToolCall"]),
        ("tool", ["ToolResult"]),
        ("assistant", ["Text"]),
    ]
    call = said[1].parts[0]
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ADD


async def test_a_client_of_a_chat_that_names_a_key_sees_its_own_calls_alone(url: str) -> None:
    keys = "auth: {keys: [{id: ann, secret: s-ann}, {id: bob, secret: s-bob}]}\n"
    provider = ScriptedProvider("fake", calls(ADD), says("3"))
    async with running(provider, extra=tools(url) + keys) as gateway, client(gateway, "s-ann") as ann:
        found = await ann.responses.create(model="fake/m", input="hi", tools=[SMALL])  # type: ignore[list-item]
        async with client(gateway, "s-bob") as bob:
            with pytest.raises(openai.NotFoundError):
                await bob.responses.retrieve(found.id)


def _shape(messages: tuple[Message, ...]) -> list[tuple[str, list[str]]]:
    return [(message.role, [type(part).__name__ for part in message.parts]) for message in messages]


async def test_after_a_kill_calls_that_were_made_are_there_and_the_one_that_ran_is_incomplete(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'gateway.db'}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.gateway.tools.calling", database, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(await process.stdout.readline())}"
        asked = body(background=True, stream=True, tools=[SMALL])
        async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/responses", json=asked) as answer:
            done = 0
            async for line in answer.content:
                done += line.startswith(b"event: response.mcp_call_arguments.done")
                if line.startswith(b"data:") and b'"response":{"id"' in line:
                    response_id = json.loads(line[6:])["response"]["id"]
                if done == 3:
                    break
            process.kill()
            answer.close()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    async with running(ScriptedProvider("fake", HELLO), extra=STORAGE.format(database)) as gateway:
        path = f"{gateway.url}/v1/responses/{response_id}?stream=true"
        async with gateway.session.get(path) as answer:
            response = checked(await answer.read())
        assert response["status"] == "failed"
        assert kinds(response) == ["mcp_list_tools", "mcp_call", "mcp_call", "mcp_call"]
        _, added, who, hung = response["output"]
        assert added["output"] == "3"
        assert (hung["status"], hung["arguments"], hung["output"]) == ("incomplete", "{}", None)
        await until(lambda: not _lives(int(who["output"])), within_s=5)  # the server's process has ended as well


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
