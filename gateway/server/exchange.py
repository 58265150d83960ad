"""One request while it is served: what is known about it, for its answer's headers and for its line in the log."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import Started
from adapters.canonical.usage import Usage
from adapters.front import Front, StreamRenderer
from gateway.routing.router import Progress
from gateway.server.answer_headers import answer_headers, stream_headers
from gateway.server.door import ClientKey
from gateway.server.event_stream import EventStream
from gateway.server.log import Log
from providers.base import Batch

__all__ = ["Exchange"]


class Exchange:
    """`token` is the random part of the ids of this request; `clock` gives seconds of any origin."""

    __slots__ = (
        "_clock",
        "_task",
        "began",
        "error",
        "evicted",
        "first_output",
        "front",
        "held_bytes",
        "key",
        "model",
        "progress",
        "renderer",
        "request",
        "request_id",
        "status",
        "stream",
        "streams",
        "token",
        "upstream_request_id",
    )

    def __init__(self, request: web.BaseRequest, *, token: str, request_id: str, clock: Callable[[], float]) -> None:
        self.request = request
        self.token = token
        self.request_id = request_id
        self._clock = clock
        self._task = asyncio.current_task()
        self.began = clock()
        self.status = 0
        self.key: ClientKey | None = None
        self.front: Front | None = None
        self.model: str | None = None
        self.streams: bool | None = None
        self.held_bytes = 0
        self.progress: Progress | None = None
        self.upstream_request_id: str | None = None
        self.first_output: float | None = None
        self.error: GatewayError | None = None
        self.stream: EventStream | None = None
        self.renderer: StreamRenderer | None = None
        self.evicted = False
        """The gateway itself cancelled the request, because it stops."""

    @property
    def usage(self) -> Usage | None:
        return self.progress.usage if self.progress is not None else None

    def headers(self) -> dict[str, str]:
        return answer_headers(self.request_id, self.progress, self.upstream_request_id)

    def stream_headers(self) -> dict[str, str]:
        self.status = 200
        return stream_headers(self.headers(), self.front.stream_content_type if self.front is not None else "")

    def see_first(self, batch: Batch) -> None:
        """The batch that brings the first output."""
        self.first_output = self._clock()
        for event in batch:
            if type(event) is Started:
                self.upstream_request_id = event.request_id

    def evict(self) -> None:
        """Cancels the request; its client is told why."""
        if self._task is not None and not self._task.done():
            self.evicted = True
            self._task.cancel()

    def log(self, log: Log, path: str) -> None:
        """Writes the request's line."""
        progress = self.progress
        target = progress.target if progress is not None else None
        usage = self.usage
        log.write(
            "request",
            {
                "request_id": self.request_id,
                "method": self.request.method,
                "path": path,
                "status": self.status,
                "duration_ms": _ms(self._clock() - self.began),
                "ttft_ms": _ms(self.first_output - self.began) if self.first_output is not None else None,
                "key": self.key.id if self.key is not None else None,
                "model": log.outside(self.model) if self.model is not None else None,
                "stream": self.streams,
                "provider": target.provider.name if target is not None else None,
                "upstream_model": log.outside(target.model) if target is not None else None,
                "attempts": progress.attempts if progress is not None and progress.attempts > 1 else None,
                "dropped": ",".join(progress.dropped) if progress is not None and progress.dropped else None,
                "prompt_tokens": usage.prompt_tokens if usage is not None else None,
                "completion_tokens": usage.completion_tokens if usage is not None else None,
                "error": self.error.code or self.error.type if self.error is not None else None,
            },
        )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
