"""A snapshot in Prometheus' text form."""

from collections.abc import Iterable, Iterator

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from gateway.telemetry import names
from gateway.telemetry.names import Name, prometheus_label, prometheus_name
from gateway.telemetry.series import Histogram, Snapshot

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_REQUEST = (names.ROUTE, names.MODEL, names.PROVIDER, names.KEY)
_TARGET = (names.PROVIDER, names.UPSTREAM_MODEL)


def exposition(snapshot: Snapshot) -> bytes:
    return generate_latest(_Snapshot(snapshot))


class _Snapshot(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        yield from _requests(self._snapshot)
        yield from _attempts(self._snapshot)
        yield from _gauges(self._snapshot)


def _requests(snapshot: Snapshot) -> Iterator[Metric]:
    ended = _counter(names.REQUESTS, (*_REQUEST, names.STATUS, names.ERROR))
    lookups = _counter(names.CACHE_LOOKUPS, (*_REQUEST, names.RESULT))
    tokens = _counter(names.TOKENS, (*_REQUEST, names.TOKEN_TYPE))
    cost = _counter(names.COST, _REQUEST)
    duration = _histogram(names.REQUEST_DURATION, _REQUEST)
    queue = _histogram(names.QUEUE, _REQUEST)
    ttft = _histogram(names.TIME_TO_FIRST_TOKEN, _REQUEST)
    tpot = _histogram(names.TIME_PER_OUTPUT_TOKEN, _REQUEST)
    usage = _histogram(names.TOKEN_USAGE, (*_REQUEST, names.TOKEN_TYPE))
    for labels, series in snapshot.requests.items():
        for (status, error), count in series.ended.items():
            ended.add_metric([*labels, str(status), error], count)
        for result, count in series.cache.items():
            lookups.add_metric([*labels, result], count)
        for kind, total in (
            ("input", series.prompt.sum),
            ("output", series.completion.sum),
            ("cached", series.cached_tokens),
            ("cache_write", series.cache_write_tokens),
            ("reasoning", series.reasoning_tokens),
        ):
            if total:
                tokens.add_metric([*labels, kind], total)
        if series.cost_usd:
            cost.add_metric(labels, series.cost_usd)
        for family, histogram, more in (
            (duration, series.duration, ()),
            (queue, series.queue, ()),
            (ttft, series.ttft, ()),
            (tpot, series.tpot, ()),
            (usage, series.prompt, ("input",)),
            (usage, series.completion, ("output",)),
        ):
            _add(family, (*labels, *more), histogram)
    yield from (ended, duration, queue, ttft, tpot, usage, tokens, cost, lookups)


def _attempts(snapshot: Snapshot) -> Iterator[Metric]:
    ended = _counter(names.ATTEMPTS, (*_TARGET, names.KIND, names.OUTCOME, names.ERROR))
    duration = _histogram(names.ATTEMPT_DURATION, _TARGET)
    undeclared = _counter(names.UNDECLARED_CALLS, _TARGET)
    for target, series in snapshot.attempts.items():
        if series.undeclared_calls:
            undeclared.add_metric(target, series.undeclared_calls)
        for key, count in series.ended.items():
            ended.add_metric([*target, *key], count)
        _add(duration, target, series.duration)
    yield from (ended, duration, undeclared)


def _gauges(snapshot: Snapshot) -> Iterator[Metric]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for gauge in snapshot.gauges:
        family = families.get(gauge.name)
        if family is None:
            name = prometheus_name(Name(gauge.name, gauge.unit, gauge.help))
            kind = CounterMetricFamily if gauge.counter else GaugeMetricFamily
            labels = [prometheus_label(label) for label, _ in gauge.labels]
            family = families[gauge.name] = kind(name, gauge.help, labels=labels)
        family.add_metric([value for _, value in gauge.labels], gauge.value)
    yield from families.values()


def _counter(name: Name, labels: Iterable[str]) -> CounterMetricFamily:
    return CounterMetricFamily(prometheus_name(name), name.help, labels=list(map(prometheus_label, labels)))


def _histogram(name: Name, labels: Iterable[str]) -> HistogramMetricFamily:
    return HistogramMetricFamily(prometheus_name(name), name.help, labels=list(map(prometheus_label, labels)))


def _add(family: HistogramMetricFamily, labels: tuple[str, ...], histogram: Histogram) -> None:
    if not histogram.count:
        return
    running = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        running += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", running))
    family.add_metric(labels, buckets=buckets, sum_value=histogram.sum)
