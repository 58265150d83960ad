"""A streamed answer on its socket: when the status goes out, and comment frames in long silence."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Self

from gateway.http.request import Request
from gateway.http.stream import Stream

__all__ = ["EventStream"]


class EventStream:
    """Status and headers are held until the first write, or until `keepalive_s` of silence, then a comment frame goes.

    `headers` is asked when they go out. One timer serves the whole stream. Use it as a context manager: leaving it
    stops the timer.
    """

    __slots__ = ("_frame", "_headers", "_keepalive_s", "_loop", "_request", "_timer", "_touched", "stream")

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
        self._timer = self._loop.call_later(keepalive_s, self._beat)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._timer.cancel()

    async def write(self, frames: bytes) -> None:
        """One write to the socket. Waits while the client is slow; raises ConnectionError when it is gone."""
        stream = self.stream or self._open()
        self._touched = self._loop.time()
        stream.write(frames)
        if stream.is_full:
            await stream.drained()

    async def end(self, frames: bytes) -> Stream:
        """The last frames, and the end of the body."""
        self._timer.cancel()
        stream = self.stream or self._open()
        stream.end(frames)
        if stream.is_full:
            await stream.drained()
        return stream

    def _open(self) -> Stream:
        self.stream = stream = Stream(self._request, headers=self._headers())
        return stream

    def _beat(self) -> None:
        """The timer: sends a frame after silence, save to a client that has yet to take what was written."""
        now = self._loop.time()
        wire = self._request.wire
        if now - self._touched >= self._keepalive_s:
            self._touched = now
            if not wire.outflow.is_full and not wire.is_lost:
                (self.stream or self._open()).write(self._frame)
        self._timer = self._loop.call_later(max(self._keepalive_s - (now - self._touched), 0.01), self._beat)
