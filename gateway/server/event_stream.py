"""A streamed answer on its socket: when the status goes out, comment frames in long silence, and slow readers."""

import asyncio
from collections.abc import Callable, Mapping

from gateway.http.request import Request
from gateway.http.stream import Stream

__all__ = ["STALLED_S", "EventStream"]

STALLED_S = 60.0
"""A client that takes nothing for so long is cut off."""


class EventStream:
    """Status and headers are held until the first write, or until `keepalive_s` of silence, then a comment frame goes.

    `headers` is asked when they go out. One timer serves the whole stream. Use it as an async context manager: leaving
    it stops the timer.
    """

    __slots__ = (
        "_beat_task",
        "_frame",
        "_headers",
        "_keepalive_s",
        "_loop",
        "_request",
        "_timer",
        "_touched",
        "_writing",
        "stream",
    )

    def __init__(
        self, request: Request, headers: Callable[[], Mapping[str, str]], *, keepalive_s: float, frame: bytes
    ) -> None:
        self.stream: Stream | None = None
        """None while nothing was sent."""
        self._request = request
        self._headers = headers
        self._keepalive_s = keepalive_s
        self._frame = frame
        self._loop = asyncio.get_running_loop()
        self._touched = self._loop.time()
        self._writing = False
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
        stream = self.stream or self._open()
        self._touched = self._loop.time()
        stream.write(frames)
        if stream.is_full:
            self._writing = True
            await stream.drained()
            self._writing = False

    async def end(self, frames: bytes) -> Stream:
        """The last frames, and the end of the body."""
        if self._beat_task is not None:
            await self._beat_task
            self._beat_task = None
        stream = self.stream or self._open()
        self._touched = self._loop.time()
        stream.end(frames)
        if stream.is_full:
            self._writing = True
            await stream.drained()
            self._writing = False
        return stream

    def _open(self) -> Stream:
        self.stream = stream = Stream(self._request, headers=self._headers())
        return stream

    async def _send_beat(self) -> None:
        stream = self.stream or self._open()
        self._touched = self._loop.time()
        stream.write(self._frame)
        await stream.drained()

    def _beat(self) -> None:
        """The timer: sends a frame after silence, and cuts off a client that stopped reading."""
        silence_s = self._loop.time() - self._touched
        if self._writing or (self._beat_task is not None and not self._beat_task.done()):
            if silence_s >= STALLED_S:
                self._request.wire.abort()
        elif silence_s >= self._keepalive_s:
            self._beat_task = self._loop.create_task(self._send_beat())
            silence_s = 0.0
        self._timer = self._loop.call_later(min(max(self._keepalive_s - silence_s, 0.01), STALLED_S), self._beat)
