"""Every metric as a family of numbers with labels: the one table that each form of output walks.

Knows what is counted (`gateway.telemetry.series`) and under which names it leaves, but no format.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from gateway.telemetry import names
from gateway.telemetry.names import Name
from gateway.telemetry.series import AttemptSeries, Gauge, Histogram, RequestSeries, Snapshot

__all__ = ["Family", "Label", "families"]

Label = str | int
Labels = tuple[Label, ...]
S = TypeVar("S")


@dataclass(slots=True)
class Family:
    """Points hold the values of `labels`, in their order. Those of a histogram are in `histograms`."""

    name: Name
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    numbers: list[tuple[Labels, float]] = field(default_factory=list)
    histograms: list[tuple[Labels, Histogram]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Counter(Generic[S]):
    """`labels` stand beside those of the series; `read` gives their values. What is 0 is left out."""

    name: Name
    labels: tuple[str, ...]
    read: Callable[[S], Iterable[tuple[Labels, float]]]


@dataclass(frozen=True, slots=True)
class _Spread(Generic[S]):
    """The same for a histogram."""

    name: Name
    labels: tuple[str, ...]
    read: Callable[[S], Iterable[tuple[Labels, Histogram]]]


_OF_REQUESTS: tuple[_Counter[RequestSeries] | _Spread[RequestSeries], ...] = (
    _Counter(names.REQUESTS, (names.STATUS, names.ERROR), lambda series: series.ended.items()),
    _Spread(names.REQUEST_DURATION, (), lambda series: [((), series.duration)]),
    _Spread(names.QUEUE, (), lambda series: [((), series.queue)]),
    _Spread(names.TIME_TO_FIRST_TOKEN, (), lambda series: [((), series.ttft)]),
    _Spread(names.TIME_PER_OUTPUT_TOKEN, (), lambda series: [((), series.tpot)]),
    _Spread(
        names.TOKEN_USAGE,
        (names.TOKEN_TYPE,),
        lambda series: [(("input",), series.prompt), (("output",), series.completion)],
    ),
    _Counter(
        names.TOKENS,
        (names.TOKEN_TYPE,),
        lambda series: [
            (("input",), series.prompt.sum),
            (("output",), series.completion.sum),
            (("cached",), series.cached_tokens),
            (("cache_write",), series.cache_write_tokens),
            (("reasoning",), series.reasoning_tokens),
        ],
    ),
    _Counter(names.COST, (), lambda series: [((), series.cost_usd)]),
    _Counter(
        names.CACHE_LOOKUPS, (names.RESULT,), lambda series: [((result,), n) for result, n in series.cache.items()]
    ),
)
_OF_ATTEMPTS: tuple[_Counter[AttemptSeries] | _Spread[AttemptSeries], ...] = (
    _Counter(names.ATTEMPTS, (names.KIND, names.OUTCOME, names.ERROR), lambda series: series.ended.items()),
    _Spread(names.ATTEMPT_DURATION, (), lambda series: [((), series.duration)]),
    _Counter(names.UNDECLARED_CALLS, (), lambda series: [((), series.undeclared_calls)]),
)


def families(snapshot: Snapshot) -> Iterator[Family]:
    """All of them; those of requests and attempts also where nothing was counted."""
    of_requests = (names.ROUTE, names.MODEL, names.PROVIDER, names.KEY, names.TEAM)
    yield from _counted(_OF_REQUESTS, of_requests, snapshot.requests.items())
    yield from _counted(_OF_ATTEMPTS, (names.PROVIDER, names.UPSTREAM_MODEL), snapshot.attempts.items())
    yield from _gauges(snapshot.gauges)


def _counted(
    table: Iterable[_Counter[S] | _Spread[S]], labels: tuple[str, ...], counted: Collection[tuple[tuple[str, ...], S]]
) -> Iterator[Family]:
    for metric in table:
        if isinstance(metric, _Counter):
            family = Family(metric.name, "counter", (*labels, *metric.labels))
            for values, series in counted:
                family.numbers += [((*values, *more), number) for more, number in metric.read(series) if number]
        else:
            family = Family(metric.name, "histogram", (*labels, *metric.labels))
            for values, series in counted:
                family.histograms += [((*values, *more), found) for more, found in metric.read(series) if found.count]
        yield family


def _gauges(gauges: Iterable[Gauge]) -> Iterable[Family]:
    found: dict[str, Family] = {}
    for gauge in gauges:
        family = found.get(gauge.name)
        if family is None:
            kind: Literal["counter", "gauge"] = "counter" if gauge.counter else "gauge"
            labels = tuple([label for label, _ in gauge.labels])
            family = found[gauge.name] = Family(Name(gauge.name, gauge.unit, gauge.help), kind, labels)
        family.numbers.append((tuple([value for _, value in gauge.labels]), gauge.value))
    return found.values()
