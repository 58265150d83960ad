"""Counters and histograms: what is observed is told, over several processes as well, and names cannot grow for ever."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.exposition import exposition
from gateway.telemetry.series import Gauge, Histogram, RequestSeries, Snapshot, merged

BOUNDS = (1.0, 2.0, 4.0)


@given(st.lists(st.floats(min_value=0, max_value=10)))
def test_a_histogram_counts_every_value_once_and_below_its_bound(values: list[float]) -> None:
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    assert histogram.count == len(values)
    assert abs(histogram.sum - sum(values)) < 1e-6
    for place, bound in enumerate(BOUNDS):
        assert sum(histogram.counts[: place + 1]) == sum(value <= bound for value in values)


def counted(*durations: float) -> Snapshot:
    series = RequestSeries(ended={(200, ""): len(durations)})
    for duration in durations:
        series.duration.observe(duration)
    return Snapshot(
        {("/v1/x", "m", "p", "k", "t"): series}, {}, [Gauge("gateway.requests.active", "{request}", "Run.", 2)]
    )


def test_the_sum_over_processes_is_that_of_each() -> None:
    whole = merged([counted(0.1, 0.2), counted(3.0)])
    series = whole.requests["/v1/x", "m", "p", "k", "t"]
    assert series.ended == {(200, ""): 3}
    assert series.duration.count == 3
    assert whole.gauges[0].value == 4


def test_what_all_processes_see_is_not_added_up() -> None:
    def told(waiting: float, tokens: float) -> Snapshot:
        gauges = [
            Gauge("gateway.engine.waiting", "1", "Waiting.", waiting, shared=True),
            Gauge("gateway.engine.generated_tokens", "1", "Tokens.", tokens, counter=True, shared=True),
        ]
        return Snapshot(gauges=gauges)

    assert [gauge.value for gauge in merged([told(2, 10), told(3, 12), told(3, 12)]).gauges] == [3, 12]


def test_a_sum_leaves_what_it_adds_as_it_was() -> None:
    one = counted(0.1)
    merged([one, counted(0.2)])
    assert one.requests["/v1/x", "m", "p", "k", "t"].duration.count == 1


def test_a_snapshot_travels_as_a_message() -> None:
    sent = counted(0.1, 100.0)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Snapshot) == sent


def test_the_exposition_reads_back_as_what_was_counted() -> None:
    families = {
        family.name: family for family in text_string_to_metric_families(exposition(counted(0.1, 50.0)).decode())
    }
    buckets = families["gen_ai_server_request_duration_seconds"].samples
    of = {sample.labels["le"]: sample.value for sample in buckets if sample.name.endswith("_bucket")}
    assert (of["0.08"], of["0.16"], of["40.96"], of["81.92"], of["+Inf"]) == (0, 1, 1, 2, 2)
    requests = families["gateway_requests"].samples[0]
    assert requests.value == 2
    assert (requests.labels["gateway_key"], requests.labels["gateway_team"]) == ("k", "t")
