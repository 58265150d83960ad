"""Sends spans and metrics to an OpenTelemetry collector (OTLP over gRPC or HTTP), in batches and off the event loop.

The one module that imports OpenTelemetry (the extra [otel]). A collector that is away costs its data and one line in
the log, never a request.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
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
from gateway.telemetry.families import Family, families
from gateway.telemetry.series import Snapshot
from gateway.telemetry.spans import Span, Spans
from gateway.version import VERSION

__all__ = ["Otlp", "metrics_data", "readable_span"]

_NO_HEADERS: Mapping[str, str] = {}
_UNHEARD = logging.NullHandler()
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


class Otlp:
    """`endpoint` is the collector's base address, `headers` go with every call. `lost` is told, once, that it cannot be
    reached.

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
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        logger = logging.getLogger("opentelemetry")  # which would say at each failure what `lost` hears once
        logger.addHandler(_UNHEARD)
        logger.propagate = False
        self._spans = spans
        self._snapshot = snapshot
        self._now = now
        self._began = now()
        self._lost = lost
        self._told = False
        if protocol == "auto":
            protocol = "grpc" if urlsplit(endpoint).port == _GRPC_PORT else "http"
        make = _grpc_exporters if protocol == "grpc" else _http_exporters
        self._span_exporter, self._metric_exporter = make(
            endpoint.rstrip("/"), {name.lower(): value for name, value in headers.items()}
        )
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
            await asyncio.sleep(_EVERY_S)
            turn += 1
            await self.send(metrics=turn % _METRICS_EVERY == 0)

    def _send_spans(self, batch: list[Span]) -> bool:
        return self._span_exporter.export(list(map(readable_span, batch))) is SpanExportResult.SUCCESS

    def _send_metrics(self, data: MetricsData) -> bool:
        return self._metric_exporter.export(data) is MetricExportResult.SUCCESS


def _http_exporters(base: str, headers: dict[str, str]) -> tuple[SpanExporter, MetricExporter]:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return (
        OTLPSpanExporter(f"{base}/v1/traces", headers=headers, timeout=_SEND_S),
        OTLPMetricExporter(f"{base}/v1/metrics", headers=headers, timeout=_SEND_S),
    )


def _grpc_exporters(base: str, headers: dict[str, str]) -> tuple[SpanExporter, MetricExporter]:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    plain = not base.startswith("https://")
    return (
        OTLPSpanExporter(base, insecure=plain, headers=headers, timeout=_SEND_S),
        OTLPMetricExporter(base, insecure=plain, headers=headers, timeout=_SEND_S),
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
    times = _ns(began), _ns(now)
    metrics = [_metric(family, *times) for family in families(snapshot)]
    return MetricsData([ResourceMetrics(_RESOURCE, [ScopeMetrics(_SCOPE, metrics, "")], "")])


def _metric(family: Family, began_ns: int, now_ns: int) -> Metric:
    data: Sum | GaugeData | HistogramData
    if family.kind == "histogram":
        spread = [
            HistogramDataPoint(
                dict(zip(family.labels, values, strict=True)),
                began_ns,
                now_ns,
                histogram.count,
                histogram.sum,
                tuple(histogram.counts),
                histogram.bounds,
                float("nan"),
                float("nan"),
            )
            for values, histogram in family.histograms
        ]
        data = HistogramData(spread, _CUMULATIVE)
    else:
        points = [
            NumberDataPoint(dict(zip(family.labels, values, strict=True)), began_ns, now_ns, number)
            for values, number in family.numbers
        ]
        data = Sum(points, _CUMULATIVE, True) if family.kind == "counter" else GaugeData(points)
    return Metric(family.name.name, family.name.help, family.name.unit, data)


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
