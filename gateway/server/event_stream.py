"""A streamed answer on its socket: when the status goes out, comment frames in long silence, and slow readers."""

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import HttpVersion11, web

__all__ = ["STALLED_S", "EventStream"]

_DRAIN_EVERY = 1 << 16
"""So many bytes may be written before the client's pace is asked for."""
STALLED_S = 60.0
"""A client that takes nothing for so long is cut off."""


class EventStream:
    """Status and headers are held until the first write, or until `keepalive_s` of silence, then a comment frame goes.

    `headers` is asked when they go out. One timer serves the whole stream. Use it as an async context manager: leaving
    it stops the timer.
    """

    __slots__ = (
        "_beat_task",
        "_chunked",
        "_frame",
        "_headers",
        "_keepalive_s",
        "_loop",
        "_request",
        "_timer",
        "_touched",
        "_undrained",
        "_writing",
        "response",
    )

    def __init__(
        self, request: web.BaseRequest, headers: Callable[[], Mapping[str, str]], *, keepalive_s: float, frame: bytes
    ) -> None:
        self.response: web.StreamResponse | None = None
        """None while nothing was sent."""
        self._request = request
        self._headers = headers
        self._keepalive_s = keepalive_s
        self._frame = frame
        self._loop = asyncio.get_running_loop()
        self._touched = self._loop.time()
        self._writing = False
        self._chunked = False
        self._undrained = 0
        self._beat_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(keepalive_s, self._beat)

    async def __aenter__(self) -> "EventStream":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._beat_task is not None:
            self._beat_task.cancel()
            await asyncio.gather(self._beat_task, return_exceptions=True)
            self._beat_task = None

    async def write(self, frames: bytes) -> None:
        """One write to the socket. Waits while the client is slow; raises ConnectionError when it is gone."""
        if self._beat_task is not None:
            await self._beat_task
            self._beat_task = None
        response = self.response or await self._open()
        self._writing = True
        self._touched = self._loop.time()
        transport = self._request.transport
        if self._chunked and transport is not None and not transport.is_closing():
            # aiohttp's own way to these bytes has two more coroutines and costs 2 us more (2026-11).
            transport.write(b"%x\r\n%b\r\n" % (len(frames), frames))
            self._undrained += len(frames)
            if self._undrained > _DRAIN_EVERY:
                self._undrained = 0
                await self._request.writer.drain()
        else:
            await response.write(frames)
        self._writing = False

    async def end(self, frames: bytes) -> web.StreamResponse:
        """The last frames, and the end of the body."""
        if self._beat_task is not None:
            await self._beat_task
            self._beat_task = None
        response = self.response or await self._open()
        self._writing = True
        self._touched = self._loop.time()
        await response.write_eof(frames)
        self._writing = False
        return response

    async def _open(self) -> web.StreamResponse:
        self.response = response = web.StreamResponse(headers=self._headers())
        await response.prepare(self._request)
        self._chunked = self._request.version >= HttpVersion11
        return response

    async def _send_beat(self) -> None:
        response = self.response or await self._open()
        self._touched = self._loop.time()
        await response.write(self._frame)

    def _beat(self) -> None:
        """The timer: sends a frame after silence, and cuts off a client that stopped reading."""
        silence_s = self._loop.time() - self._touched
        if self._writing or (self._beat_task is not None and not self._beat_task.done()):
            if silence_s >= STALLED_S and self._request.transport is not None:
                self._request.transport.abort()
        elif silence_s >= self._keepalive_s:
            self._beat_task = self._loop.create_task(self._send_beat())
            silence_s = 0.0
        self._timer = self._loop.call_later(min(max(self._keepalive_s - silence_s, 0.01), STALLED_S), self._beat)
