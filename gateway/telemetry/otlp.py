"""Sends spans and metrics to an OpenTelemetry collector (OTLP over gRPC or HTTP), in batches and off the event loop.

The one module that imports OpenTelemetry (the extra [otel]). A collector that is away costs its data and one line in
the log, never a request.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Gauge as GaugeData
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from gateway.telemetry import names
from gateway.telemetry.names import Name
from gateway.telemetry.series import Gauge, Histogram, Snapshot
from gateway.telemetry.spans import Span, Spans
from gateway.version import VERSION

__all__ = ["Otlp", "metrics_data", "readable_span"]

_EVERY_S = 5.0
_METRICS_EVERY = 6
"""Metrics go with every sixth batch of spans."""
_SEND_S = 3.0
"""What a collector gets to take a batch, its second tries included."""
_BATCH = 2048
_SCOPE = InstrumentationScope("llm-protocol-gateway", VERSION)
_RESOURCE = Resource({"service.name": "llm-protocol-gateway", "service.version": VERSION})
_KINDS = {"request": SpanKind.SERVER, "call": SpanKind.CLIENT, "phase": SpanKind.INTERNAL}
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_GRPC_PORT = 4317
"""Where collectors listen for gRPC (OTLP specification 1.8, read 2026-11)."""
Protocol = Literal["auto", "grpc", "http"]
_Labels = tuple[tuple[str, str | int], ...]


class Otlp:
    """`endpoint` is the collector's base address. `lost` is told, once, that it cannot be reached.

    `snapshot` and `spans` are read on the event loop; what is made of them is sent in a thread.
    """

    def __init__(
        self,
        endpoint: str,
        spans: Spans,
        snapshot: Callable[[], Snapshot],
        *,
        now: Callable[[], float],
        lost: Callable[[], None],
        protocol: Protocol = "auto",
        every_s: float = _EVERY_S,
    ) -> None:
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        self._spans = spans
        self._snapshot = snapshot
        self._now = now
        self._began = now()
        self._lost = lost
        self._told = False
        self._every_s = every_s
        if protocol == "auto":
            protocol = "grpc" if urlsplit(endpoint).port == _GRPC_PORT else "http"
        make = _grpc_exporters if protocol == "grpc" else _http_exporters
        self._span_exporter, self._metric_exporter = make(endpoint.rstrip("/"))
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def aclose(self) -> None:
        """Sends what waits, and ends."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self.send(metrics=True)
        self._span_exporter.shutdown()
        self._metric_exporter.shutdown()

    async def send(self, *, metrics: bool) -> None:
        """Sends all spans that wait, and the metrics."""
        waiting = self._spans.waiting
        sent = True
        while waiting and sent:
            batch = [waiting.popleft() for _ in range(min(len(waiting), _BATCH))]
            sent = await asyncio.to_thread(self._send_spans, batch)
        if metrics and sent:
            data = metrics_data(self._snapshot(), began=self._began, now=self._now())
            sent = await asyncio.to_thread(self._send_metrics, data)
        if not sent and not self._told:
            self._told = True
            self._lost()
        elif sent:
            self._told = False

    async def _run(self) -> None:
        turn = 0
        while True:
            await asyncio.sleep(self._every_s)
            turn += 1
            await self.send(metrics=turn % _METRICS_EVERY == 0)

    def _send_spans(self, batch: list[Span]) -> bool:
        return self._span_exporter.export(list(map(readable_span, batch))) is SpanExportResult.SUCCESS

    def _send_metrics(self, data: MetricsData) -> bool:
        return self._metric_exporter.export(data) is MetricExportResult.SUCCESS


def _http_exporters(base: str) -> tuple[SpanExporter, MetricExporter]:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return (
        OTLPSpanExporter(f"{base}/v1/traces", headers={}, timeout=_SEND_S),
        OTLPMetricExporter(f"{base}/v1/metrics", headers={}, timeout=_SEND_S),
    )


def _grpc_exporters(base: str) -> tuple[SpanExporter, MetricExporter]:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    plain = not base.startswith("https://")
    return (
        OTLPSpanExporter(base, insecure=plain, headers=(), timeout=_SEND_S),
        OTLPMetricExporter(base, insecure=plain, headers=(), timeout=_SEND_S),
    )


def readable_span(span: Span) -> ReadableSpan:
    """The SDK's span for a record."""
    flags = TraceFlags(TraceFlags.SAMPLED)
    state = TraceState.from_header([span.state]) if span.state else None
    parent = None
    if span.parent_id:
        parent = SpanContext(span.trace_id, span.parent_id, is_remote=span.kind == "request", trace_flags=flags)
    events = [] if span.first_output is None else [Event("gateway.first_output", timestamp=_ns(span.first_output))]
    attributes = dict(span.attributes)
    if span.error is not None:
        attributes[names.ERROR] = span.error
    return ReadableSpan(
        span.name,
        context=SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=flags, trace_state=state),
        parent=parent,
        resource=_RESOURCE,
        attributes=attributes,
        events=events,
        kind=_KINDS[span.kind],
        status=Status(StatusCode.UNSET if span.error is None else StatusCode.ERROR),
        start_time=_ns(span.began),
        end_time=_ns(span.ended),
        instrumentation_scope=_SCOPE,
    )


def metrics_data(snapshot: Snapshot, *, began: float, now: float) -> MetricsData:
    """A snapshot as the SDK's data; times are Unix seconds."""
    made = _Made(_ns(began), _ns(now))
    metrics = [*made.requests(snapshot), *made.attempts(snapshot), *made.gauges(snapshot.gauges)]
    return MetricsData([ResourceMetrics(_RESOURCE, [ScopeMetrics(_SCOPE, metrics, "")], "")])


class _Made:
    """Metrics whose points all have the same times."""

    def __init__(self, began_ns: int, now_ns: int) -> None:
        self._began_ns = began_ns
        self._now_ns = now_ns

    def requests(self, snapshot: Snapshot) -> Iterator[Metric]:
        rows = [
            ((names.ROUTE, route), (names.MODEL, model), (names.PROVIDER, provider), (names.KEY, key))
            for route, model, provider, key in snapshot.requests
        ]
        series = list(zip(rows, snapshot.requests.values(), strict=True))
        yield self._sum(
            names.REQUESTS,
            [
                ((*row, (names.STATUS, status), (names.ERROR, error)), count)
                for row, one in series
                for (status, error), count in one.ended.items()
            ],
        )
        yield self._histogram(names.REQUEST_DURATION, [(row, one.duration) for row, one in series])
        yield self._histogram(names.QUEUE, [(row, one.queue) for row, one in series])
        yield self._histogram(names.TIME_TO_FIRST_TOKEN, [(row, one.ttft) for row, one in series])
        yield self._histogram(names.TIME_PER_OUTPUT_TOKEN, [(row, one.tpot) for row, one in series])
        usage = [((*row, (names.TOKEN_TYPE, "input")), one.prompt) for row, one in series]
        usage += [((*row, (names.TOKEN_TYPE, "output")), one.completion) for row, one in series]
        yield self._histogram(names.TOKEN_USAGE, usage)
        tokens: list[tuple[_Labels, float]] = []
        for row, one in series:
            for kind, total in (
                ("cached", one.cached_tokens),
                ("cache_write", one.cache_write_tokens),
                ("reasoning", one.reasoning_tokens),
            ):
                if total:
                    tokens.append(((*row, (names.TOKEN_TYPE, kind)), total))
        yield self._sum(names.TOKENS, tokens)
        yield self._sum(names.COST, [(row, one.cost_usd) for row, one in series if one.cost_usd])
        yield self._sum(
            names.CACHE_LOOKUPS,
            [((*row, (names.RESULT, result)), count) for row, one in series for result, count in one.cache.items()],
        )

    def attempts(self, snapshot: Snapshot) -> Iterator[Metric]:
        series = [
            (((names.PROVIDER, provider), (names.UPSTREAM_MODEL, model)), one)
            for (provider, model), one in snapshot.attempts.items()
        ]
        yield self._sum(
            names.ATTEMPTS,
            [
                ((*row, (names.KIND, kind), (names.OUTCOME, outcome), (names.ERROR, error)), count)
                for row, one in series
                for (kind, outcome, error), count in one.ended.items()
            ],
        )
        yield self._histogram(names.ATTEMPT_DURATION, [(row, one.duration) for row, one in series])
        undeclared = [(row, one.undeclared_calls) for row, one in series if one.undeclared_calls]
        yield self._sum(names.UNDECLARED_CALLS, undeclared)

    def gauges(self, gauges: Iterable[Gauge]) -> Iterator[Metric]:
        for _, same in groupby(sorted(gauges, key=lambda gauge: gauge.name), key=lambda gauge: gauge.name):
            rows = list(same)
            name = Name(rows[0].name, rows[0].unit, rows[0].help)
            points: list[tuple[_Labels, float]] = [(gauge.labels, gauge.value) for gauge in rows]
            if rows[0].counter:
                yield self._sum(name, points)
            else:
                yield Metric(name.name, name.help, name.unit, GaugeData(self._points(points)))

    def _sum(self, name: Name, points: Sequence[tuple[_Labels, float]]) -> Metric:
        return Metric(name.name, name.help, name.unit, Sum(self._points(points), _CUMULATIVE, True))

    def _points(self, points: Sequence[tuple[_Labels, float]]) -> list[NumberDataPoint]:
        return [NumberDataPoint(dict(labels), self._began_ns, self._now_ns, value) for labels, value in points]

    def _histogram(self, name: Name, rows: Sequence[tuple[_Labels, Histogram]]) -> Metric:
        points = [
            HistogramDataPoint(
                dict(labels),
                self._began_ns,
                self._now_ns,
                histogram.count,
                histogram.sum,
                tuple(histogram.counts),
                histogram.bounds,
                float("nan"),
                float("nan"),
            )
            for labels, histogram in rows
            if histogram.count
        ]
        return Metric(name.name, name.help, name.unit, HistogramData(points, _CUMULATIVE))


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
