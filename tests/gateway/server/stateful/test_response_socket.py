"""The WebSocket on /v1/responses: the official SDK's connection, and what the wire shows."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest

from adapters.canonical.errors import UpstreamInternal, UpstreamRateLimited
from adapters.canonical.messages import Message, Text
from providers.testing.scripted import ScriptedProvider
from tests.adapters.openai.responses.event_order import check_events
from tests.gateway.server.running import HELLO, Running, error_of, running, text, until
from tests.gateway.server.stateful.responding import KEYS, ONE_TRY, answers, client

pytestmark = pytest.mark.timeout(60)
LAST = ("response.completed", "response.incomplete", "response.failed", "error")


@asynccontextmanager
async def connected(gateway: Running, **options: Any) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with gateway.session.ws_connect(f"{gateway.url}/v1/responses", **options) as socket:
        yield socket


async def create(socket: aiohttp.ClientWebSocketResponse, **fields: Any) -> None:
    await socket.send_json({"type": "response.create", "model": "fake/m", "input": "hi", **fields})


async def events_of(socket: aiohttp.ClientWebSocketResponse) -> list[dict[str, Any]]:
    """Those of one response, up to its end."""
    found: list[dict[str, Any]] = []
    while not found or found[-1]["type"] not in LAST:
        found.append(json.loads((await socket.receive()).data))
    return found


async def response_of(socket: aiohttp.ClientWebSocketResponse, **fields: Any) -> dict[str, Any]:
    await create(socket, **fields)
    return check_events(await events_of(socket))


async def error_from(socket: aiohttp.ClientWebSocketResponse, **fields: Any) -> dict[str, Any]:
    await create(socket, **fields)
    (found,) = await events_of(socket)
    assert set(found) == {"type", "status", "error"}
    assert set(found["error"]) == {"type", "code", "message", "param"}
    return found


async def test_72_the_sdk_connects_and_gets_the_events_of_each_response() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        async with sdk.responses.connect() as connection:
            for _ in range(2):
                await connection.response.create(model="fake/m", input="hi")
                seen: list[Any] = []
                async for event in connection:
                    seen.append(event)
                    if event.type == "response.completed":
                        break
                assert [event.sequence_number for event in seen] == list(range(len(seen)))
                final = seen[-1]
                assert final.type == "response.completed"
                assert final.response.output_text == "Hello there"
        found = await sdk.responses.retrieve(final.response.id)
        assert found.output_text == "Hello there"


@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")  # of the SDK's own use of its library
async def test_72_the_synchronous_sdk_connects_as_well() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:

        def use() -> list[str]:
            with (
                openai.OpenAI(base_url=gateway.url + "/v1", api_key="any", max_retries=0) as sdk,
                sdk.responses.connect() as connection,
            ):
                connection.response.create(model="fake/m", input="hi")
                found: list[str] = []
                for event in connection:
                    found.append(event.type)
                    if event.type == "response.completed":
                        break
                return found

        assert (await asyncio.to_thread(use))[0] == "response.created"


async def test_72_responses_are_made_one_after_the_other_in_the_order_asked_for() -> None:
    hang = asyncio.Event()
    provider = ScriptedProvider("fake", [hang, *answers("one")], answers("two"), answers("three"))
    async with running(provider) as gateway, connected(gateway) as socket:
        for _ in range(3):
            await create(socket)
        await provider.waiting.wait()
        assert len(provider.requests) == 1
        hang.set()
        texts = [check_events(await events_of(socket))["output"][0]["content"][0]["text"] for _ in range(3)]
    assert texts == ["one", "two", "three"]


async def test_72_a_chain_that_is_not_kept_goes_on_within_its_connection() -> None:
    provider = ScriptedProvider("fake", answers("one"), answers("two"), answers("three"))
    async with running(provider) as gateway:
        async with connected(gateway) as socket:
            first = await response_of(socket, input="a", store=False)
            second = await response_of(socket, input="b", store=False, previous_response_id=first["id"])
            third = await response_of(socket, input="c", store=False, previous_response_id=second["id"])
            assert third["previous_response_id"] == second["id"]
        async with connected(gateway) as socket:
            found = await error_from(socket, previous_response_id=third["id"])
        assert (found["status"], found["error"]["code"]) == (404, "previous_response_not_found")
        async with gateway.session.get(f"{gateway.url}/v1/responses/{first['id']}") as answer:
            assert answer.status == 404
    said = [(message.role, message.parts) for message in provider.requests[2].messages or ()]
    assert [parts[0].text for _, parts in said if isinstance(parts[0], Text)] == ["a", "one", "b", "two", "c"]


async def test_72_a_turn_that_fails_makes_the_connection_forget_what_it_followed_on() -> None:
    provider = ScriptedProvider("fake", answers("one"), [UpstreamRateLimited("slow down")], answers("two"))
    async with running(provider, extra=ONE_TRY) as gateway, connected(gateway) as socket:
        first = await response_of(socket, store=False)
        found = await error_from(socket, store=False, previous_response_id=first["id"])
        assert (found["status"], found["error"]["type"]) == (429, "rate_limit_error")
        found = await error_from(socket, store=False, previous_response_id=first["id"])
        assert found["error"]["code"] == "previous_response_not_found"
        assert (await response_of(socket))["status"] == "completed"


async def test_72_a_fault_in_the_middle_is_a_failed_response() -> None:
    provider = ScriptedProvider("fake", [text("par"), UpstreamInternal("broken")], [ZeroDivisionError("bug")], HELLO)
    async with running(provider, extra=ONE_TRY) as gateway, connected(gateway) as socket:
        found = await response_of(socket)
        assert (found["status"], found["error"]["message"]) == ("failed", "broken")
        async with gateway.session.get(f"{gateway.url}/v1/responses/{found['id']}") as answer:
            assert await answer.json() == found
        assert (await error_from(socket))["status"] == 500
        assert (await response_of(socket))["status"] == "completed"


async def test_72_what_is_wrong_is_named_and_the_connection_goes_on() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, connected(gateway) as socket:
        for fields, param in (
            ({"type": "response.pause"}, "type"),
            ({"type": None}, "type"),
            ({"model": None}, "model"),
            ({"background": True}, "background"),
            ({"previous_response_id": "a", "conversation": "b"}, "previous_response_id"),
            ({"input": [{"type": "message"}]}, "input[0].role"),
            ({"model": "nowhere"}, "model"),
        ):
            found = await error_from(socket, **fields)
            assert found["error"]["param"] == param
            assert found["status"] == (404 if param == "model" and fields["model"] else 400)
        for raw in ("{", "[]", '"x"'):
            await socket.send_str(raw)
            (found,) = await events_of(socket)
            assert (found["status"], found["error"]["code"]) == (400, "invalid_json")
        await socket.send_bytes(b'{"type":"response.create","model":"fake/m","input":"hi"}')
        assert check_events(await events_of(socket))["status"] == "completed"


async def test_what_codex_says_besides_its_requests_disturbs_no_answer() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, connected(gateway) as socket:
        delivery = {"reasoning_summary_delivery": "sequential_cutoff"}
        found = await response_of(socket, stream_options=delivery)
        await socket.send_json({"type": "response.processed", "response_id": found["id"]})
        assert (await response_of(socket))["status"] == "completed"


async def test_steering_is_refused_with_its_reason_and_the_input_comes_back() -> None:
    async with (
        running(ScriptedProvider("fake", HELLO)) as gateway,
        client(gateway) as sdk,
        sdk.responses.connect() as connection,
    ):
        await connection.send({"type": "response.steer", "previous_response_id": "resp_1", "input": "and now?"})
        event = await connection.recv()
        assert event.type == "response.steer.failed"
        assert (event.error.code, event.steer.input) == ("steering_not_supported", "and now?")
        assert "response.create" in event.error.message
        await connection.response.create(model="fake/m", input="hi")
        assert (await connection.recv()).type == "response.created"


async def test_72_usage_that_an_upstream_does_not_report_is_estimated() -> None:
    async with running(ScriptedProvider("fake", answers("one"))) as gateway, connected(gateway) as socket:
        usage = (await response_of(socket))["usage"]
    assert usage["estimated"] is True
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0


async def test_72_a_lane_is_said_again_and_an_input_can_be_prepared() -> None:
    provider = ScriptedProvider("fake", answers("one"))
    async with running(provider) as gateway, connected(gateway) as socket:
        await create(socket, stream_id="left", generate=False, input="a", store=False)
        events = await events_of(socket)
        assert {event["stream_id"] for event in events} == {"left"}
        prepared = check_events(events)
        assert (prepared["status"], prepared["output"], len(provider.requests)) == ("completed", [], 0)
        await response_of(socket, input="b", previous_response_id=prepared["id"], store=False)
        await create(socket, stream_id="left", model=None)
        assert (await events_of(socket))[0]["stream_id"] == "left"
    assert provider.requests[0].messages == tuple(Message(role="user", parts=(Text(text=one),)) for one in "ab")


async def test_72_a_connection_lasts_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.server.stateful.response_socket.LONGEST_S", 0.05)
    async with running(ScriptedProvider("fake", HELLO)) as gateway, connected(gateway) as socket:
        (found,) = await events_of(socket)
        assert found["error"]["code"] == "websocket_connection_limit_reached"
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE


async def test_72_a_client_that_leaves_stops_the_provider() -> None:
    provider = ScriptedProvider("fake", [text("a"), asyncio.Event()])
    async with running(provider) as gateway:
        for close in (True, False):
            socket = await gateway.session.ws_connect(f"{gateway.url}/v1/responses")
            await create(socket)
            await socket.receive()
            await until(lambda: provider.open_streams == 1)
            if close:
                await socket.close()
            else:
                socket._response.close()  # the connection breaks
            await until(lambda: provider.open_streams == 0)


async def test_72_a_gateway_that_stops_closes_its_sockets() -> None:
    provider = ScriptedProvider("fake", [text("a"), asyncio.Event()])
    async with running(provider) as gateway, connected(gateway) as socket:
        await create(socket)
        await until(lambda: provider.open_streams == 1)
        draining = asyncio.ensure_future(gateway.app.drain(0))
        while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
            pass
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.GOING_AWAY)
        await draining


async def test_72_a_gateway_that_stops_lets_a_response_end_and_closes_idle_sockets_at_once() -> None:
    hang = asyncio.Event()
    provider = ScriptedProvider("fake", [hang, *HELLO])
    async with running(provider) as gateway, connected(gateway) as busy, connected(gateway) as idle:
        await create(busy)
        await create(busy)
        await provider.waiting.wait()
        draining = asyncio.ensure_future(gateway.app.drain(30))
        message = await idle.receive()
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.GOING_AWAY)
        hang.set()
        assert check_events(await events_of(busy))["status"] == "completed"
        assert (await busy.receive()).type is aiohttp.WSMsgType.CLOSE
        await draining
    assert len(provider.requests) == 1


async def test_a_socket_needs_a_key_where_there_are_keys_and_a_get_needs_a_socket() -> None:
    async with running(ScriptedProvider("fake", HELLO), extra=KEYS) as gateway:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            async with connected(gateway):
                pass
        assert caught.value.status == 401
        headers = {"authorization": "Bearer s-ann"}
        async with connected(gateway, headers=headers) as socket:
            found = await response_of(socket)
        async with gateway.session.get(f"{gateway.url}/v1/responses/{found['id']}", headers=headers) as answer:
            assert answer.status == 200
        async with gateway.session.get(f"{gateway.url}/v1/responses", headers=headers) as answer:
            assert answer.status == 405
            await error_of(answer)
