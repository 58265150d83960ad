"""One connection to one MCP server, held by a task of its own. The only module that imports the mcp package, which
takes half a second: it is itself imported when the first server is asked (`gateway.tools.mcp_server`)."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import httpx2
import mcp_types as types
import orjson
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from adapters.canonical.errors import InvalidRequest
from adapters.openai.responses.tool_items import EXECUTION, HTTP, PROTOCOL, ToolFault
from gateway.tools.guarded_transport import GuardedTransport
from gateway.tools.server import MAX_OUTPUT_CHARS, ServerTool, ToolOutcome, ToolServerError
from gateway.tools.transports import HttpTransport, StdioTransport, Transport
from gateway.version import VERSION

__all__ = ["McpSession"]

_CONNECT_S = 5.0
_CLOSE_S = 6.0
"""What a server's process gets to end by itself, and then what the mcp package needs to end it."""
_GIVE_UP_S = 1.0
_MAX_PAGES = 50
_MAX_TOOLS = 1000
_OTHER_TRANSPORT = (400, 404, 405)
"""What a server that knows only the older transport says to the newer one."""
_HIDES_STATUS = (types.METHOD_NOT_FOUND, types.INVALID_REQUEST, types.INTERNAL_ERROR, types.CONNECTION_CLOSED)
"""What the mcp package makes of an error of HTTP."""
T = TypeVar("T")
_NAME = types.Implementation(name="llm-gateway", version=VERSION)


class McpSession:
    """`timeout_s` bounds every question, the first one (the connection) included."""

    def __init__(self, transport: Transport, timeout_s: float) -> None:
        self._transport = transport
        self._timeout_s = timeout_s
        self._client: Client | None = None
        self._is_open = False
        self._asking = 0
        self._statuses: list[int] = []
        """HTTP's errors since the last question began, which the mcp package keeps to itself."""
        self._stream: _Watched | None = None
        self._stuck: set[asyncio.Future[Any]] = set()
        self._closing = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None

    @property
    def is_alive(self) -> bool:
        if self._client is None or self._holder is None or self._holder.done():
            return False
        return self._stream is None or not self._stream.ended

    async def open(self) -> None:
        """Raises ToolServerError."""
        logging.getLogger("mcp").setLevel(logging.CRITICAL)  # its tracebacks tell addresses and texts
        try:
            await self._open(_streams(self._transport, self._statuses))
        except ToolServerError as error:
            transport = self._transport
            if not (
                isinstance(transport, HttpTransport) and transport.sse is None and error.fault.code in _OTHER_TRANSPORT
            ):
                raise
            await self._open(_streams(replace(transport, sse=True), self._statuses))

    async def _open(self, streams: AbstractAsyncContextManager[Any]) -> None:
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing.clear()
        self._is_open = False
        self._holder = asyncio.get_running_loop().create_task(self._hold(streams, ready))
        try:
            both: set[asyncio.Future[Any]] = {self._holder, ready}
            await asyncio.wait(both, timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                if self._holder.done():
                    raise _fault_of(self._holder.exception(), self._statuses)
                raise _late(self._timeout_s)
            self._client, self._is_open = ready.result(), True
        except BaseException:
            await self.aclose()
            raise

    async def _hold(self, streams: AbstractAsyncContextManager[Any], ready: "asyncio.Future[Client]") -> None:
        """The life of the connection: what the mcp package opens, it wants to close in the same task."""
        client = Client(self._watched(streams), client_info=_NAME, cache=None)
        async with client:
            if not ready.done():
                ready.set_result(client)
            await self._closing.wait()

    @asynccontextmanager
    async def _watched(self, streams: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """The streams, of which it is known when their server hangs up."""
        async with streams as (read, write):
            self._stream = _Watched(read)
            yield self._stream, write

    async def tools(self) -> Sequence[ServerTool]:
        found: list[ServerTool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            listed = await self._ask(partial(_list_tools, cursor=cursor))
            found += [_tool(tool) for tool in listed.tools]
            cursor = listed.next_cursor
            if cursor is None or len(found) > _MAX_TOOLS:
                break
        if cursor is not None or len(found) > _MAX_TOOLS:
            raise ToolServerError(ToolFault(PROTOCOL, f"it lists more than {_MAX_TOOLS} tools"))
        return found

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        result = await self._ask(lambda client: client.call_tool(name, dict(arguments)))
        text = _text(result)
        if len(text) > MAX_OUTPUT_CHARS:
            raise ToolServerError(ToolFault(EXECUTION, f"its answer is longer than {MAX_OUTPUT_CHARS} characters"))
        return ToolOutcome(text, ToolFault(EXECUTION, text) if result.is_error else None)

    async def _ask(self, question: Callable[[Client], Awaitable[T]]) -> T:
        """The answer to one question. Raises ToolServerError; where the connection is to blame it is not alive then."""
        client, holder = self._client, self._holder
        if client is None or holder is None or holder.done():
            raise _closed()
        self._asking += 1
        self._statuses.clear()
        asked = asyncio.ensure_future(question(client))
        try:
            both: set[asyncio.Future[Any]] = {asked, holder}
            await asyncio.wait(both, timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            if not holder.done() and self._asking > 1:  # others may still be answered
                raise _late(self._timeout_s)
            self._client = None
            raise _closed() if holder.done() else _late(self._timeout_s)
        except ToolServerError:
            raise
        except Exception as error:  # whatever a server can make the mcp package raise
            told = _fault_of(error, self._statuses)
            if not isinstance(error, MCPError | ValueError) or told.fault.code in (types.CONNECTION_CLOSED, 404):
                self._client = None
            raise told from error
        finally:
            self._asking -= 1
            await self._give_up(asked)

    async def _give_up(self, asked: "asyncio.Future[Any]") -> None:
        """Ends a question. Where the server does not even take the news, the connection is of no use any more."""
        asked.cancel()
        await asyncio.wait({asked}, timeout=_GIVE_UP_S)
        if asked.done():
            if not asked.cancelled():
                asked.exception()  # whoever asked has it
            return
        self._client = None
        self._stuck.add(asked)

    async def aclose(self) -> None:
        self._client = None
        self._closing.set()
        holder = self._holder
        if holder is None:
            return
        if not self._is_open:
            holder.cancel()  # it still waits for the server's first word
        await asyncio.wait({holder}, timeout=_CLOSE_S)
        holder.cancel()
        await asyncio.gather(holder, *self._stuck, return_exceptions=True)


async def _list_tools(client: Client, cursor: str | None) -> types.ListToolsResult:
    return await client.list_tools(cursor=cursor)


class _Watched:
    """What a server sends, as the mcp package reads it, with the news of its end."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.ended = False

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_Watched":
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self.ended = True
            raise

    async def __aenter__(self) -> "_Watched":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()


def _streams(transport: Transport, statuses: list[int]) -> AbstractAsyncContextManager[Any]:
    if isinstance(transport, StdioTransport):
        program, *arguments = transport.command
        process = StdioServerParameters(command=program, args=arguments, env=dict(transport.env))
        return stdio_client(process, errlog=sys.__stderr__ or sys.stderr)
    if transport.sse:

        def client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return _http_client(transport, statuses)

        return sse_client(transport.url, httpx_client_factory=client)
    return _streamable(transport, statuses)


@asynccontextmanager
async def _streamable(transport: HttpTransport, statuses: list[int]) -> AsyncIterator[Any]:
    async with (
        _http_client(transport, statuses) as client,
        streamable_http_client(transport.url, http_client=client) as streams,
    ):
        yield streams


def _http_client(transport: HttpTransport, statuses: list[int]) -> httpx2.AsyncClient:
    """How long an answer may take is the session's own business."""

    async def note(answer: httpx2.Response) -> None:
        if answer.status_code >= 400:
            statuses.append(answer.status_code)

    return httpx2.AsyncClient(
        headers=dict(transport.headers),
        timeout=httpx2.Timeout(None, connect=_CONNECT_S),
        transport=None if transport.fetcher is None else GuardedTransport(transport.fetcher),
        event_hooks={"response": [note]},
        trust_env=False,
    )


def _tool(tool: types.Tool) -> ServerTool:
    try:
        return ServerTool(
            name=tool.name,
            description=tool.description,
            schema=orjson.dumps(tool.input_schema),
            annotations=_json(tool.annotations) if tool.annotations is not None else None,
            read_only=tool.annotations is not None and tool.annotations.read_only_hint is True,
        )
    except TypeError as error:  # deeper than JSON is written, or numbers that it has not
        raise ToolServerError(ToolFault(PROTOCOL, f"the schema of '{tool.name[:100]}' cannot be read")) from error


def _json(model: BaseModel) -> bytes:
    return model.model_dump_json(by_alias=True, exclude_none=True).encode()


def _text(result: types.CallToolResult) -> str:
    """All of it as text; media are told of, not shown."""
    found: list[str] = []
    for block in result.content:
        match block:
            case types.TextContent():
                found.append(block.text)
            case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
                found.append(resource.text)
            case types.ImageContent() | types.AudioContent():
                found.append(f"[{block.type} {block.mime_type}, {len(block.data) * 3 // 4} bytes]")
            case types.ResourceLink():
                found.append(f"[{block.name}: {block.uri}]")
            case _:
                found.append(f"[{block.type}]")
    if not found and result.structured_content is not None:
        found.append(orjson.dumps(result.structured_content).decode())
    return "\n".join(found)


def _closed() -> ToolServerError:
    return ToolServerError(ToolFault(PROTOCOL, "the connection broke off", types.CONNECTION_CLOSED))


def _late(timeout_s: float) -> ToolServerError:
    return ToolServerError(ToolFault(PROTOCOL, f"it gave no answer within {timeout_s:g} s", types.REQUEST_TIMEOUT))


def _fault_of(error: BaseException | None, statuses: Sequence[int]) -> ToolServerError:
    """What is said of an exception of the mcp package, or of what it stands on. `statuses` are HTTP's errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case ToolServerError():
            return error
        case httpx2.HTTPStatusError():
            status = error.response.status_code
            fault = ToolFault(HTTP, f"it answered with {status}", status)
        case MCPError() if statuses and error.code in _HIDES_STATUS:
            fault = ToolFault(HTTP, f"it answered with {statuses[-1]}", statuses[-1])
        case MCPError(code=types.CONNECTION_CLOSED):
            fault = _closed().fault
        case MCPError():
            fault = ToolFault(PROTOCOL, error.message or "it answered with an error", error.code)
        case httpx2.ConnectError(__cause__=InvalidRequest() as refused):
            fault = ToolFault(PROTOCOL, refused.message)
        case httpx2.ConnectError():
            fault = ToolFault(PROTOCOL, "it cannot be reached")
        case FileNotFoundError() | PermissionError():
            fault = ToolFault(PROTOCOL, "its command cannot be started")
        case httpx2.HTTPError() | OSError():
            fault = ToolFault(PROTOCOL, "the connection broke off")
        case ValueError():
            fault = ToolFault(PROTOCOL, "it gave an answer that is not of the protocol")
        case _:
            fault = ToolFault(PROTOCOL, "the connection broke off")
    return ToolServerError(fault)
