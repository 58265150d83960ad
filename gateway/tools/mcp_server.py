"""An MCP server that is kept: connected when it is first asked, shared by all responses, connected anew after it was
lost, with growing pauses while it cannot be reached."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from adapters.openai.responses.tool_items import PROTOCOL, ToolFault
from gateway.tools.server import ServerTool, ToolOutcome, ToolServerError
from gateway.tools.transports import Transport

if TYPE_CHECKING:
    from gateway.tools.session import McpSession

__all__ = ["McpServer"]

_FRESH_S = 60.0
"""So long a list of tools is good."""
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0
_FORGOTTEN = 404
"""HTTP's word for a session that the server does not know any more: nothing was called."""
_WHAT = "the MCP server"


class McpServer:
    """Satisfies `ToolServer`. `clock` gives seconds of any origin; `lost` is told why it cannot be reached."""

    def __init__(
        self, transport: Transport, timeout_s: float, *, clock: Callable[[], float], lost: Callable[[str], None]
    ) -> None:
        self._transport = transport
        self._timeout_s = timeout_s
        self._clock = clock
        self._lost = lost
        self._session: McpSession | None = None
        self._connecting: asyncio.Task[McpSession] | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._tools: Sequence[ServerTool] = ()
        self._listed_at: float | None = None
        self._failures = 0
        self._not_before = 0.0
        self._is_closed = False

    async def tools(self) -> Sequence[ServerTool]:
        session = await self._connected()
        if self._listed_at is None or self._clock() - self._listed_at > _FRESH_S:
            try:
                self._tools = await session.tools()
            except ToolServerError as error:
                raise self._told(error, session) from error
            self._listed_at = self._clock()
        return self._tools

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        session = await self._connected()
        try:
            return await session.call(name, arguments)
        except ToolServerError as error:
            told = self._told(error, session)
            if error.fault.code != _FORGOTTEN:
                raise told from error
        session = await self._connected()
        try:
            return await session.call(name, arguments)
        except ToolServerError as error:
            raise self._told(error, session) from error

    async def aclose(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        self._drop()
        await asyncio.gather(*self._retiring, return_exceptions=True)

    async def _connected(self) -> "McpSession":
        """A session that is alive. Raises ToolServerError, at once while it is no use to try."""
        if self._session is not None and self._session.is_alive:
            return self._session
        if self._is_closed:
            raise _closed()
        if self._connecting is None:
            left_s = self._not_before - self._clock()
            if left_s > 0:
                why = f"{_WHAT} cannot be reached; it is tried again in {math.ceil(left_s)} s"
                raise ToolServerError(ToolFault(PROTOCOL, why))
            self._drop()
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._settled)
        connecting = self._connecting
        await asyncio.wait({connecting})  # whoever leaves does not end it for others
        if connecting.cancelled():
            raise _closed()
        return connecting.result()

    def _settled(self, connecting: "asyncio.Task[McpSession]") -> None:
        self._connecting = None
        if not connecting.cancelled():
            connecting.exception()  # whoever waited has it; nobody may be left

    async def _connect(self) -> "McpSession":
        session_type = await asyncio.to_thread(_session_type)
        session = session_type(self._transport, self._timeout_s)
        try:
            await session.open()
        except ToolServerError as error:
            pause_s = min(_FIRST_PAUSE_S * 2**self._failures, _LONGEST_PAUSE_S)
            self._failures += 1
            self._not_before = self._clock() + pause_s
            self._lost(error.fault.message)
            raise _named(error) from error
        self._failures, self._listed_at = 0, None
        self._session = session
        return session

    def _told(self, error: ToolServerError, session: "McpSession") -> ToolServerError:
        """The error as it is told; a connection that is of no use any more is left to end."""
        if not session.is_alive and session is self._session:
            self._drop()
            self._lost(error.fault.message)
        return _named(error)

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            task = asyncio.get_running_loop().create_task(session.aclose())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)


def _session_type() -> "type[McpSession]":
    from gateway.tools.session import McpSession

    return McpSession


def _closed() -> ToolServerError:
    return ToolServerError(ToolFault(PROTOCOL, f"{_WHAT} is closed"))


def _named(error: ToolServerError) -> ToolServerError:
    fault = error.fault
    return ToolServerError(replace(fault, message=f"{_WHAT}: {fault.message}"))
