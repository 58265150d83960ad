"""Prometheus and OpenTelemetry are told the same."""

from opentelemetry.sdk.metrics.export import HistogramDataPoint, Metric, NumberDataPoint
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.exposition import exposition
from gateway.telemetry.families import families
from gateway.telemetry.names import prometheus_label, prometheus_name
from gateway.telemetry.otlp import metrics_data
from gateway.telemetry.series import AttemptSeries, Gauge, Histogram, RequestSeries, Snapshot

Point = tuple[str, frozenset[tuple[str, str]], float]


def everything() -> Snapshot:
    """With something counted of each metric."""
    requests = RequestSeries(ended={(200, ""): 2, (502, "BadUpstreamResponse"): 1}, cache={"hit": 1, "miss": 2})
    histograms = (requests.duration, requests.queue, requests.ttft, requests.tpot, requests.prompt, requests.completion)
    for histogram in histograms:
        histogram.observe(0.5)
        histogram.observe(7)
    requests.cached_tokens, requests.cache_write_tokens, requests.reasoning_tokens, requests.cost_usd = 3, 4, 5, 0.25
    attempts = AttemptSeries(ended={("first", "failed", "UpstreamError"): 1}, undeclared_calls=6)
    attempts.duration.observe(1)
    gauges = [
        Gauge("gateway.requests.active", "{request}", "Run.", 2),
        Gauge("gateway.engine.tokens", "1", "Made.", 9, (("gen_ai.provider.name", "p"),), True),
    ]
    return Snapshot({("/v1/x", "m", "p", "k", "t"): requests}, {("p", "u"): attempts}, gauges)


def of_prometheus(snapshot: Snapshot) -> set[Point]:
    """Every number, and of a histogram its count and sum."""
    return {
        (sample.name.removesuffix("_total"), frozenset(sample.labels.items()), sample.value)
        for family in text_string_to_metric_families(exposition(snapshot).decode())
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def of_opentelemetry(snapshot: Snapshot) -> set[Point]:
    (resource,) = metrics_data(snapshot, began=1, now=2).resource_metrics
    (scope,) = resource.scope_metrics
    names = {prometheus_name(family.name): family.name.name for family in families(snapshot)}
    found: set[Point] = set()
    for metric in scope.metrics:
        (name,) = [written for written, dotted in names.items() if dotted == metric.name]
        for point in points_of(metric):
            labels = frozenset((prometheus_label(key), str(value)) for key, value in (point.attributes or {}).items())
            if isinstance(point, HistogramDataPoint):
                found |= {(f"{name}_count", labels, point.count), (f"{name}_sum", labels, point.sum)}
            else:
                found.add((name, labels, point.value))
    return found


def points_of(metric: Metric) -> list[NumberDataPoint | HistogramDataPoint]:
    points: list[NumberDataPoint | HistogramDataPoint] = []
    for point in metric.data.data_points:
        assert isinstance(point, NumberDataPoint | HistogramDataPoint)
        points.append(point)
    return points


def test_every_number_leaves_in_both_forms_under_the_same_name_and_labels() -> None:
    told = of_prometheus(everything())
    assert told == of_opentelemetry(everything())
    assert {name for name, _, _ in told} >= {"gateway_cost_usd", "gateway_engine_tokens", "gateway_attempts"}


def test_each_metric_of_requests_and_attempts_has_a_point_where_all_was_counted() -> None:
    assert [family.name.name for family in families(everything()) if not (family.numbers or family.histograms)] == []


def test_what_was_never_counted_has_its_name_and_no_point() -> None:
    empty = list(families(Snapshot({("/v1/x", "m", "p", "k", "t"): RequestSeries()})))
    assert empty
    assert [family for family in empty if family.numbers or family.histograms] == []


def test_the_bounds_of_a_histogram_are_whole() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe(1.0)
    histogram.observe(9.0)
    snapshot = Snapshot({("r", "m", "p", "k", "t"): RequestSeries(duration=histogram)})
    (family,) = [each for each in families(snapshot) if each.histograms]
    assert family.histograms == [(("r", "m", "p", "k", "t"), histogram)]
    (metric,) = [
        each
        for each in metrics_data(snapshot, began=1, now=2).resource_metrics[0].scope_metrics[0].metrics
        if each.name == family.name.name
    ]
    (point,) = points_of(metric)
    assert isinstance(point, HistogramDataPoint)
    assert (list(point.bucket_counts), list(point.explicit_bounds)) == ([1, 0, 1], [1.0, 2.0])
