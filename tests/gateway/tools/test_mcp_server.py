"""A kept MCP server: connected once, again after a loss, with pauses while it is not there."""

import asyncio
import os
import signal

import pytest

from gateway.tools.mcp_server import McpServer
from gateway.tools.server import ToolServerError
from gateway.tools.transports import HttpTransport, StdioTransport, Transport
from tests.gateway.tools.serving import PLAIN, served

pytestmark = pytest.mark.timeout(60)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def kept(transport: Transport, clock: Clock | None = None, *, timeout_s: float = 10.0) -> tuple[McpServer, list[str]]:
    """The server, and why it was lost until now."""
    lost: list[str] = []
    return McpServer(transport, timeout_s, clock=clock or Clock(), lost=lost.append), lost


async def test_a_server_that_ended_while_nobody_looked_is_started_again_without_a_failed_call() -> None:
    server, lost = kept(StdioTransport(tuple(PLAIN), {"TOOL_SECRET": "from run.yaml"}))
    try:
        assert (await server.call("secret", {})).text == "from run.yaml"
        process = int((await server.call("whoami", {})).text)
        os.kill(process, signal.SIGKILL)
        async with asyncio.timeout(5):
            while (await _asked(server)) in ("", str(process)):
                pass  # the news of its end takes a moment
        assert len(lost) <= 1  # the kill and a call may meet
    finally:
        await server.aclose()


async def _asked(server: McpServer) -> str:
    try:
        return (await server.call("whoami", {})).text
    except ToolServerError:
        return ""


async def test_an_http_server_that_was_restarted_is_called_without_a_failed_call() -> None:
    with served() as url:
        server, lost = kept(HttpTransport(f"{url}/mcp"))
        first = (await server.call("whoami", {})).text
    try:
        with served(port=int(url.rpartition(":")[2])):
            assert (await server.call("whoami", {})).text != first
            assert lost == []
    finally:
        await server.aclose()


async def test_a_server_that_is_not_there_is_asked_again_after_pauses_that_grow() -> None:
    clock = Clock()
    server, lost = kept(HttpTransport("http://127.0.0.1:9/mcp"), clock)
    for pause_s in (0.5, 1.0, 2.0, 4.0):
        before = len(lost)
        with pytest.raises(ToolServerError, match="it cannot be reached"):
            await server.tools()
        assert len(lost) == before + 1
        clock.now += pause_s * 0.9
        with pytest.raises(ToolServerError, match="cannot be reached; it is tried again in"):
            await server.tools()
        assert len(lost) == before + 1
        clock.now += pause_s * 0.2
    await server.aclose()


async def test_a_list_of_tools_is_good_for_a_minute(url: str) -> None:
    clock = Clock()
    server, _ = kept(HttpTransport(f"{url}/mcp"), clock)
    try:
        first = await server.tools()
        assert await server.tools() is first
        clock.now += 61.0
        assert await server.tools() is not first
        assert {tool.name for tool in first if tool.read_only} == {"add"}
    finally:
        await server.aclose()


async def test_many_ask_at_once_over_one_connection(url: str) -> None:
    server, lost = kept(HttpTransport(f"{url}/mcp"))
    try:
        found = await asyncio.gather(*[server.call("add", {"a": n, "b": 0}) for n in range(20)])
        assert [outcome.text for outcome in found] == [str(n) for n in range(20)]
        assert lost == []
    finally:
        await server.aclose()


async def test_a_call_that_hangs_takes_no_other_call_with_it(url: str) -> None:
    server, _ = kept(HttpTransport(f"{url}/mcp"), timeout_s=2.0)
    try:
        await server.tools()
        hung = asyncio.ensure_future(server.call("hang", {}))
        assert (await server.call("add", {"a": 1, "b": 1})).text == "2"
        with pytest.raises(ToolServerError, match="no answer within 2 s"):
            await hung
        assert (await server.call("add", {"a": 1, "b": 1})).text == "2"
    finally:
        await server.aclose()


async def test_media_are_told_of_and_not_shown(url: str) -> None:
    server, _ = kept(HttpTransport(f"{url}/mcp"))
    try:
        assert (await server.call("picture", {})).text == "a cat\n[image image/png, 3 bytes]"
    finally:
        await server.aclose()


async def test_a_closed_server_starts_nothing_again() -> None:
    server, _ = kept(StdioTransport(tuple(PLAIN)))
    await server.aclose()
    with pytest.raises(ToolServerError, match="is closed"):
        await server.tools()


async def test_who_leaves_while_a_server_is_connected_ends_that_for_nobody_else() -> None:
    server, _ = kept(StdioTransport(tuple(PLAIN)))
    try:
        leaving = asyncio.ensure_future(server.tools())
        staying = asyncio.ensure_future(server.call("add", {"a": 1, "b": 1}))
        await asyncio.sleep(0)
        leaving.cancel()
        assert (await staying).text == "2"
    finally:
        await server.aclose()


async def test_a_server_that_reads_nothing_is_given_up() -> None:
    """Its pipe is full, so that it does not even hear that a call is given up."""
    server, lost = kept(StdioTransport((*PLAIN, "deaf")), timeout_s=1.5)
    try:
        await server.tools()
        with pytest.raises(ToolServerError, match="no answer within"):
            await server.call("x", {"text": "y" * 1_000_000})
        assert lost
    finally:
        await server.aclose()
