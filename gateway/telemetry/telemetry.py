"""Hears of every request and of every call of a target, and hands them to what is switched on."""

from collections.abc import Callable

from gateway.routing.attempt import Attempt
from gateway.server.exchange import Exchange
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.spans import Spans
from gateway.telemetry.texts import Texts
from gateway.telemetry.traceparent import incoming
from providers.trace_context import TRACE

__all__ = ["Telemetry"]


class Telemetry:
    """Satisfies `RequestObserver` and `AttemptObserver`. `texts` writes texts down; None: they are not told.

    A client's trace goes on to upstreams whatever is switched on.
    """

    def __init__(
        self, metrics: Metrics | None = None, spans: Spans | None = None, texts: Callable[[], Texts] | None = None
    ) -> None:
        self.metrics = metrics
        self._spans = spans
        self._texts = texts

    def request_began(self, exchange: Exchange) -> None:
        remote = incoming(exchange.request.headers)
        if self._spans is not None:
            self._spans.request_began(remote)
            if self._texts is not None:
                exchange.transcript = self._texts()
        elif remote is not None:
            TRACE.set(remote.headers)
        elif TRACE.get():
            TRACE.set(())  # of the request before, on the same connection

    def request_ended(self, exchange: Exchange, route: str) -> None:
        if self.metrics is not None:
            self.metrics.request_ended(exchange, route)
        if self._spans is not None:
            self._spans.request_ended(exchange, route)

    def began(self, attempt: Attempt) -> None:
        if self._spans is not None:
            self._spans.attempt_began(attempt)

    def ended(self, attempt: Attempt) -> None:
        if self.metrics is not None:
            self.metrics.attempt_ended(attempt)
        if self._spans is not None:
            self._spans.attempt_ended(attempt)
