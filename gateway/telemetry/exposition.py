"""A snapshot in Prometheus' text form."""

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from gateway.telemetry.families import Family, families
from gateway.telemetry.names import prometheus_label, prometheus_name
from gateway.telemetry.series import Histogram, Snapshot

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(snapshot: Snapshot) -> bytes:
    return generate_latest(_Snapshot(snapshot))


class _Snapshot(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        return map(_metric, families(self._snapshot))


def _metric(family: Family) -> Metric:
    name, text, labels = prometheus_name(family.name), family.name.help, list(map(prometheus_label, family.labels))
    if family.kind == "histogram":
        spread = HistogramMetricFamily(name, text, labels=labels)
        for values, histogram in family.histograms:
            spread.add_metric(list(map(str, values)), buckets=_buckets(histogram), sum_value=histogram.sum)
        return spread
    made = (CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily)(name, text, labels=labels)
    for values, number in family.numbers:
        made.add_metric(list(map(str, values)), number)
    return made


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """How many are no larger than each bound."""
    running = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*map("{:g}".format, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        running += count
        buckets.append((bound, running))
    return buckets
