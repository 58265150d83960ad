"""Every strategy gives all targets, once each; weights converge; what belongs together stays together."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.breaker import BreakerRules
from gateway.routing.health import Health, Ttft
from gateway.routing.route import Asked, Strategy, Target
from gateway.routing.strategies import Latency, LeastBusy, Sticky, Weighted
from providers.testing.scripted import ScriptedProvider

WEIGHTS = st.lists(st.floats(0.1, 20), min_size=1, max_size=6)
NOBODY = Asked(stream=True, affinity=lambda: None)


def targets(weights: Sequence[float]) -> list[Target]:
    return [Target(ScriptedProvider(f"p{number}"), "m", weight=weight) for number, weight in enumerate(weights)]


def asked(affinity: str) -> Asked:
    return Asked(stream=True, affinity=lambda: affinity)


def health(clock: list[float] | None = None) -> Health:
    now = clock or [0.0]
    return Health(BreakerRules(), lambda: now[0])


def firsts(strategy: Strategy, among: Sequence[Target], times: int = 4000) -> Counter[str]:
    return Counter(strategy.order(among, NOBODY)[0].label for _ in range(times))


@given(WEIGHTS, st.integers(0, 2**32))
def test_each_order_holds_every_target_once(weights: list[float], seed: int) -> None:
    among, draw = targets(weights), random.Random(seed).random
    for strategy in (
        Weighted(draw),
        LeastBusy(health(), draw),
        Latency(health(), draw, lambda: 0.0),
        Sticky(draw),
    ):
        for what in (NOBODY, asked("x")):
            order = strategy.order(among, what)
            assert sorted(target.label for target in order) == [target.label for target in among]


@pytest.mark.parametrize("weights", [(3, 1), (1, 1, 1), (10, 0.5, 4)])
def test_weights_converge_to_shares(weights: tuple[float, ...]) -> None:
    among = targets(weights)
    counts = firsts(Weighted(random.Random(1).random), among)
    for target in among:
        assert counts[target.label] / 4000 == pytest.approx(target.weight / sum(weights), abs=0.03)


def test_the_others_follow_by_their_weights_as_well() -> None:
    among, strategy = targets((1000, 3, 1)), Weighted(random.Random(1).random)
    seconds = Counter(strategy.order(among, NOBODY)[1].label for _ in range(4000))
    assert seconds["p1/m"] / (seconds["p1/m"] + seconds["p2/m"]) == pytest.approx(0.75, abs=0.03)


def test_the_least_busy_one_comes_first_by_its_weight() -> None:
    known, among = health(), targets((1, 1, 4))
    for target, calls in zip(among, (2, 1, 3), strict=True):
        known.of(target).in_flight = calls
    order = LeastBusy(known, random.Random(1).random).order(among, NOBODY)
    assert [target.label for target in order] == ["p2/m", "p1/m", "p0/m"]


def test_of_equally_busy_ones_each_comes_first_now_and_then() -> None:
    counts = firsts(LeastBusy(health(), random.Random(1).random), targets((1, 1)))
    assert counts["p0/m"] / 4000 == pytest.approx(0.5, abs=0.03)


def test_the_fastest_comes_first_and_the_others_are_looked_at_now_and_then() -> None:
    known, among = health(), targets((1, 1, 1))
    for target, seconds in zip(among, (0.5, 0.1, 0.9), strict=True):
        known.of(target).ttft[True].observe(seconds, 0.0)
    counts = firsts(Latency(known, random.Random(1).random, lambda: 0.0), among)
    assert counts["p1/m"] / 4000 > 0.94
    assert counts["p0/m"] > 20
    assert counts["p2/m"] > 20


def test_one_of_which_nothing_is_known_comes_first_and_streams_are_counted_apart() -> None:
    known, among = health(), targets((1, 1))
    known.of(among[0]).ttft[True].observe(0.1, 0.0)
    known.of(among[0]).ttft[False].observe(0.1, 0.0)
    known.of(among[1]).ttft[False].observe(0.9, 0.0)
    draw = iter([0.5, 0.5, 0.9]).__next__
    assert Latency(known, draw, lambda: 0.0).order(among, NOBODY)[0] is among[1]


def test_old_times_to_first_token_weigh_less_and_are_forgotten() -> None:
    ttft = Ttft()
    ttft.observe(1.0, 0.0)
    ttft.observe(2.0, 0.1)
    soon = ttft.mean(0.1)
    assert soon is not None
    assert 1.0 < soon < 1.2
    ttft.observe(2.0, 100.0)
    late = ttft.mean(100.0)
    assert late is not None
    assert late > 1.9
    assert ttft.mean(100.0 + Ttft.FORGOTTEN_S) is None


@given(WEIGHTS, st.text(), st.integers(0, 2**32))
def test_what_belongs_together_goes_to_one_target_whatever_the_chance(
    weights: list[float], affinity: str, seed: int
) -> None:
    among = targets(weights)
    first = Sticky(random.Random(seed).random).order(among, asked(affinity))
    assert Sticky(random.Random(seed + 1).random).order(among, asked(affinity)) == first


@given(st.lists(st.floats(0.1, 20), min_size=2, max_size=6), st.text(), st.data())
def test_a_target_that_is_lost_moves_its_own_share_alone(
    weights: list[float], affinity: str, data: st.DataObject
) -> None:
    among, strategy = targets(weights), Sticky(random.random)
    lost = data.draw(st.sampled_from(among))
    before = strategy.order(among, asked(affinity))
    after = strategy.order([target for target in among if target is not lost], asked(affinity))
    assert list(after) == [target for target in before if target is not lost]


def test_sessions_are_spread_by_weight() -> None:
    among, strategy = targets((3, 1)), Sticky(random.random)
    counts = Counter(strategy.order(among, asked(f"session {number}"))[0].label for number in range(4000))
    assert counts["p0/m"] / 4000 == pytest.approx(0.75, abs=0.03)
