"""Spans of requests and of their calls of targets, as plain records; whoever exports them makes what a wire needs.

Making a span of the OpenTelemetry SDK for each request on its way would cost a third of what the request costs. So the
ids are drawn here, and the rest is done in batches, off the event loop (`gateway.telemetry.otlp`).
"""

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from gateway.routing.attempt import Attempt, Outcome
from gateway.server.exchange import Exchange
from gateway.telemetry import names
from gateway.telemetry.texts import Texts
from gateway.telemetry.traceparent import SAMPLED, RemoteTrace, outgoing
from providers.trace_context import PHASES, TRACE, Phase

__all__ = ["MAX_WAITING", "Span", "Spans", "Value"]

MAX_WAITING = 8192
"""Spans that wait to be exported; the oldest go first."""
Value = str | int | float | bool


@dataclass(slots=True)
class Span:
    """Times are Unix seconds. `parent_id` 0: it is the first of its trace. `error`: the class of what went wrong."""

    trace_id: int
    span_id: int
    parent_id: int
    name: str
    kind: Literal["request", "call", "phase"]
    """A client's request, a call of an upstream, or what an engine of ours did for one."""
    began: float
    ended: float
    error: str | None
    state: str | None
    attributes: dict[str, Value] = field(default_factory=dict)
    first_output: float | None = None


@dataclass(slots=True)
class _Request:
    """A request that is being traced."""

    trace_id: int
    span_id: int
    parent_id: int
    state: str | None


_REQUEST: ContextVar[_Request | None] = ContextVar("REQUEST", default=None)


class Spans:
    """`bits` gives a random number of so many bits, `offset_s` turns times of the gateway's clock into Unix seconds.

    A request whose client says that its trace is not recorded is not recorded here either, but passed on.
    """

    def __init__(self, bits: Callable[[int], int], offset_s: float, *, sample: float = 1.0) -> None:
        self._bits = bits
        self._offset_s = offset_s
        self._below = int(sample * 2**64)
        self.waiting: deque[Span] = deque(maxlen=MAX_WAITING)
        self._open: dict[Attempt, int] = {}

    def request_began(self, remote: RemoteTrace | None) -> None:
        """Sets what the present task works for."""
        if remote is not None:
            traced = bool(remote.flags & SAMPLED)
            request = _Request(remote.trace_id, self._id(64), remote.span_id, remote.state) if traced else None
        else:
            traced = self._bits(64) < self._below
            request = _Request(self._id(128), self._id(64), 0, None) if traced else None
        _REQUEST.set(request)
        PHASES.set(None)
        if request is not None:
            TRACE.set(outgoing(request.trace_id, request.span_id, SAMPLED, request.state))
        else:
            TRACE.set(remote.headers if remote is not None else ())

    def attempt_began(self, attempt: Attempt) -> None:
        request = _REQUEST.get()
        if request is None:
            return
        span_id = self._open[attempt] = self._id(64)
        TRACE.set(outgoing(request.trace_id, span_id, SAMPLED, request.state))
        PHASES.set(partial(self._phase, request, span_id))

    def _phase(self, request: _Request, call_id: int, phase: Phase, began: float, ended: float) -> None:
        """`began` and `ended` are of `time.monotonic`, as the gateway's own clock is."""
        span = Span(
            request.trace_id,
            self._id(64),
            call_id,
            f"{names.ENGINE.name}.{phase}",
            "phase",
            began + self._offset_s,
            ended + self._offset_s,
            None,
            request.state,
        )
        self.waiting.append(span)

    def attempt_ended(self, attempt: Attempt) -> None:
        span_id = self._open.pop(attempt, None)
        request = _REQUEST.get()
        if span_id is None or request is None:
            return
        target = attempt.target
        attributes: dict[str, Value] = {
            names.PROVIDER: target.provider.name,
            names.MODEL: target.model,
            names.KIND: attempt.kind.value,
            names.OUTCOME: attempt.outcome.value,
        }
        usage = attempt.usage
        if usage is not None:
            _add_usage(attributes, usage.prompt_tokens, usage.completion_tokens)
        failed = attempt.error if attempt.outcome is Outcome.FAILED else None
        span = Span(
            request.trace_id,
            span_id,
            request.span_id,
            f"chat {target.model}" if attempt.guard is not None else target.label,
            "call",
            attempt.began + self._offset_s,
            (attempt.ended or attempt.began) + self._offset_s,
            None if failed is None else type(failed).__name__,
            request.state,
            attributes,
        )
        if attempt.first_output is not None:
            span.first_output = attempt.first_output + self._offset_s
        self.waiting.append(span)

    def request_ended(self, exchange: Exchange, route: str) -> None:
        request = _REQUEST.get()
        if request is None:
            return
        _REQUEST.set(None)
        span = Span(
            request.trace_id,
            request.span_id,
            request.parent_id,
            f"{exchange.request.method} {route}".rstrip(),
            "request",
            exchange.began + self._offset_s,
            exchange.ended + self._offset_s,
            None if exchange.error is None else type(exchange.error).__name__,
            request.state,
            _attributes(exchange, route),
        )
        if exchange.first_output is not None:
            span.first_output = exchange.first_output + self._offset_s
        self.waiting.append(span)

    def _id(self, bits: int) -> int:
        return self._bits(bits) or 1


def _attributes(exchange: Exchange, route: str) -> dict[str, Value]:
    attributes: dict[str, Value] = {
        names.ROUTE: route,
        names.STATUS: exchange.status,
        names.REQUEST_ID: exchange.request_id,
    }
    if exchange.client is not None:
        attributes[names.CLIENT] = exchange.client
    if exchange.key is not None:
        attributes[names.KEY] = exchange.key.id
        if exchange.key.team is not None:
            attributes[names.TEAM] = exchange.key.team.id
    if exchange.streams is not None:
        attributes[names.STREAM] = exchange.streams
    progress = exchange.progress
    if progress is not None and progress.session_id is not None:
        attributes[names.SESSION] = progress.session_id
    if progress is not None and progress.target is not None:
        attributes[names.MODEL] = exchange.model or ""
        attributes[names.PROVIDER] = progress.target.provider.name
        attributes[names.UPSTREAM_MODEL] = progress.target.model
        usage = progress.usage
        if usage is not None:
            _add_usage(attributes, usage.prompt_tokens, usage.completion_tokens)
    if isinstance(exchange.transcript, Texts):
        attributes[names.INPUT_MESSAGES] = exchange.transcript.input
        attributes[names.OUTPUT_MESSAGES] = exchange.transcript.output
    return attributes


def _add_usage(attributes: dict[str, Value], prompt_tokens: int | None, completion_tokens: int | None) -> None:
    if prompt_tokens is not None:
        attributes[names.USAGE_INPUT] = prompt_tokens
    if completion_tokens is not None:
        attributes[names.USAGE_OUTPUT] = completion_tokens
