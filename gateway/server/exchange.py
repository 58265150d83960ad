"""One request while it is served: what is known about it, for its answer's headers and for its line in the log."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import Started
from adapters.canonical.request import Request
from adapters.front import Front, StreamRenderer
from gateway.http.answer import Answer
from gateway.http.request import Request as HttpRequest
from gateway.keys.client_key import ClientKey
from gateway.limits.limiter import Standing
from gateway.limits.scope import NANO
from gateway.routing.router import Progress
from gateway.server.answer_headers import add_limits, answer_headers, stream_headers
from gateway.server.body import BodyReader
from gateway.server.event_stream import EventStream
from gateway.server.log import Log
from gateway.server.request_metrics import METRICS_HEADER, metrics_comment, request_metrics
from gateway.usage.accounts import Accounts
from gateway.usage.charge import Charge
from providers.base import Batch

__all__ = ["Exchange", "Transcript"]

_NO_HEADERS: Mapping[str, str] = {}


class Transcript(Protocol):
    """What a request says, and what it is answered."""

    def asked(self, request: Request) -> None: ...

    def feed(self, batch: Batch) -> None: ...


class Exchange(Struct, eq=False):
    """`task` serves the request, `token` is the random part of its ids, `clock` gives seconds of any origin.

    `extra_headers` go beside every answer.
    """

    request: HttpRequest
    task: "asyncio.Task[None] | None"
    token: str
    request_id: str
    clock: Callable[[], float]
    extra_headers: Mapping[str, str] = _NO_HEADERS
    began: float = 0.0
    ended: float = 0.0
    """When it was over; the same as `began` until then."""
    status: int = 0
    client: str | None = None
    """The address that the request comes from; None: nobody knows."""
    key: ClientKey | None = None
    front: Front | None = None
    model: str | None = None
    path_model: str | None = None
    """The model that the request's path names."""
    streams: bool | None = None
    held_bytes: int = 0
    progress: Progress | None = None
    upstream_request_id: str | None = None
    upstream_limits: tuple[tuple[str, str], ...] = ()
    first_output: float | None = None
    error: GatewayError | None = None
    stream: EventStream | None = None
    renderer: StreamRenderer | None = None
    settle: Callable[[], Awaitable[None]] | None = None
    """What is done between the end of a stream and its last frames, whether it ends well or not."""
    accounts: Accounts | None = None
    """None: nothing is limited, and nothing is counted."""
    charge: Charge | None = None
    standing: Standing | None = None
    """What is left of the client's limits."""
    transcript: Transcript | None = None
    """What is written down of the texts, where telemetry may hold them; None: nothing."""
    cost_usd: float | None = None
    evicted: bool = False
    """The gateway itself cancelled the request, because it stops."""

    def __post_init__(self) -> None:
        self.began = self.ended = self.clock()

    async def read(self, bodies: BodyReader) -> bytes:
        """The whole body, which counts as held until the request ends. Raises what `BodyReader.read` raises."""
        body = await bodies.read(self.request)
        self.held_bytes = len(body)
        return body

    @property
    def owner(self) -> str:
        """Whose objects the client sees: those of its key."""
        return "" if self.key is None else self.key.id

    def begin_routing(self) -> Progress:
        """What the router is told about the request, and will tell about it."""
        self.progress = progress = Progress(
            task=self.task,
            headers=self.request.headers,
            key=self.key.id if self.key is not None else None,
            key_metadata=self.key.metadata if self.key is not None else _NO_HEADERS,
            request_id=self.request_id,
            charge=self.charge,
        )
        return progress

    def hand_over(self) -> Charge | None:
        """What was reserved, for someone else to settle."""
        charge, self.charge = self.charge, None
        return charge

    def answer(self, body: bytes, headers: Mapping[str, str] = _NO_HEADERS, *, status: int = 200) -> Answer:
        """All of it. `headers` go beside those that any answer has, or in place of them."""
        self.status = status
        return Answer(status=status, body=body, headers={**self.headers(), **headers} if headers else self.headers())

    def headers(self) -> dict[str, str]:
        headers = answer_headers(self.request_id, self.progress, self.upstream_request_id)
        headers.update(self.extra_headers)
        for name, value in self.upstream_limits:
            headers[f"x-gateway-upstream-{name}"] = value
        if self.standing is not None:
            add_limits(headers, self.standing)
        if self._wants_metrics and (known := request_metrics(self, self.clock())):
            headers[METRICS_HEADER] = known
        if self.front is not None:
            headers[self.front.request_id_header] = self.request_id
        return headers

    @property
    def _wants_metrics(self) -> bool:
        return self.request.headers.get(METRICS_HEADER) == "true"

    def last_comment(self) -> bytes:
        """What comes before the last frames of a stream of server-sent events; empty: nothing."""
        is_sse = self.front is not None and self.front.stream_content_type.startswith("text/event-stream")
        return metrics_comment(self, self.clock()) if is_sse and self._wants_metrics else b""

    def stream_headers(self) -> dict[str, str]:
        self.status = 200
        return stream_headers(self.headers(), self.front.stream_content_type if self.front is not None else "")

    def see_first(self, batch: Batch) -> None:
        """The batch that brings the first output."""
        self.first_output = self.clock()
        for event in batch:
            if type(event) is Started:
                self.upstream_request_id, self.upstream_limits = event.request_id, event.limits

    def evict(self) -> None:
        """Cancels the request; its client is told why."""
        if self.task is not None and not self.task.done():
            self.evicted = True
            self.task.cancel()

    def end(self) -> None:
        """The answer is over, in whatever way. Settles what was reserved for it."""
        self.ended = self.clock()
        self.stream = None  # which knows this exchange: a cycle, that would wait with the prompt for the collector
        if self.charge is not None:
            self.charge.settle()
            if self.charge.cost_nano_usd is not None:
                self.cost_usd = self.charge.cost_nano_usd / NANO

    def log(self, log: Log, path: str) -> None:
        """Writes the line of a request that has ended."""
        fields: dict[str, object] = {
            "request_id": self.request_id,
            "method": self.request.method,
            "path": path,
            "status": self.status,
            "duration_ms": _ms(self.ended - self.began),
        }
        if self.first_output is not None:
            fields["ttft_ms"] = _ms(self.first_output - self.began)
        if self.client is not None:
            fields["client"] = self.client
        if self.key is not None:
            fields["key"] = self.key.id
            if self.key.team is not None:
                fields["team"] = self.key.team.id
        if self.model is not None:
            fields["model"], fields["stream"] = log.outside(self.model), self.streams
        if self.progress is not None:
            _add_progress(fields, self.progress, log)
        if self.cost_usd is not None:
            fields["cost_usd"] = self.cost_usd
        if self.error is not None:
            fields["error"] = self.error.code or self.error.type
        log.write("request", fields)


def _add_progress(fields: dict[str, object], progress: Progress, log: Log) -> None:
    if progress.target is not None:
        fields["provider"], fields["upstream_model"] = progress.target.provider.name, log.outside(progress.target.model)
    if progress.cache is not None:
        fields["cache"] = progress.cache
    if progress.attempts > 1:
        fields["attempts"] = progress.attempts
    if progress.dropped:
        fields["dropped"] = progress.dropped
    if progress.passed_over:
        found = progress.passed_over
        fields["passed_over"] = [f"{log.outside(target.label)}: {log.outside(why)}" for target, why in found]
    usage = progress.usage
    if usage is not None:
        fields["prompt_tokens"], fields["completion_tokens"] = usage.prompt_tokens, usage.completion_tokens


def _ms(seconds: float) -> float:
    return int(seconds * 10_000) / 10  # round() to digits costs four times as much
