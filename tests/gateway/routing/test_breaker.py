"""When a target is left alone, for how long, and that one request alone finds out whether it is back."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.routing.breaker import Breaker, BreakerRules, BreakerState

RULES = BreakerRules(failures=3, window_s=10, open_s=5)


def opened(at: float = 0.0) -> Breaker:
    breaker = Breaker(RULES)
    assert [breaker.failed(at, None) for _ in range(3)] == [False, False, True]
    return breaker


def test_it_opens_after_so_many_failures_and_lets_nothing_through() -> None:
    breaker = opened(at=1.0)
    assert breaker.state(5.9) is BreakerState.OPEN
    assert not breaker.admits(5.9)
    assert breaker.left_s(2.0) == 4.0


def test_failures_further_apart_than_the_window_do_not_open_it() -> None:
    breaker = Breaker(RULES)
    assert not any(breaker.failed(at, None) for at in (0.0, 6.0, 12.0, 18.0))
    assert breaker.failed(19.0, None)


def test_a_busy_target_that_seldom_fails_stays() -> None:
    breaker = Breaker(RULES)
    for number in range(100):
        for _ in range(9):
            breaker.succeeded()
        assert not breaker.failed(number / 100, None)


def test_a_target_that_fails_every_other_time_is_left_alone() -> None:
    breaker = Breaker(RULES)
    for number in range(3):
        breaker.succeeded()
        breaker.failed(number, None)
    assert breaker.state(3) is BreakerState.OPEN


def test_half_open_admits_one_until_its_end_is_known() -> None:
    breaker, probe = opened(), object()
    assert breaker.state(5.0) is BreakerState.HALF_OPEN
    assert breaker.admits(5.0)
    breaker.begin(5.0, probe)
    assert not breaker.admits(50.0)
    breaker.succeeded()
    assert breaker.state(50.0) is BreakerState.CLOSED


def test_a_probe_that_fails_opens_it_anew() -> None:
    breaker, probe = opened(), object()
    breaker.begin(5.0, probe)
    assert breaker.failed(6.0, probe)
    assert breaker.left_s(6.0) == 5.0


def test_a_probe_whose_client_left_makes_room_for_the_next() -> None:
    breaker, probe = opened(), object()
    breaker.begin(5.0, probe)
    breaker.released(object())
    assert not breaker.admits(5.0)
    breaker.released(probe)
    assert breaker.admits(5.0)


def test_what_began_before_it_opened_says_nothing_against_the_probe() -> None:
    breaker, probe = opened(), object()
    breaker.begin(5.0, probe)
    assert not breaker.failed(5.5, object())
    assert not breaker.admits(5.5)


class Calls(RuleBasedStateMachine):
    """Any order of calls and ends, over any time."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(RULES)
        self.now = 0.0
        self.running: list[tuple[object, bool]] = []

    @rule(seconds=st.floats(0, 8))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def a_call_asks_to_begin(self) -> None:
        state = self.breaker.state(self.now)
        if self.breaker.admits(self.now):
            assert state is not BreakerState.OPEN
            call = object()
            self.breaker.begin(self.now, call)
            self.running.append((call, state is BreakerState.HALF_OPEN))

    @rule(data=st.data(), end=st.sampled_from(["succeeded", "failed", "released"]))
    def a_call_ends(self, data: st.DataObject, end: str) -> None:
        if not self.running:
            return
        call, _ = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if end == "succeeded":
            self.breaker.succeeded()
            self.running = [(each, False) for each, _ in self.running]  # what was a probe is an ordinary call now
        elif end == "failed":
            self.breaker.failed(self.now, call)
        else:
            self.breaker.released(call)

    @invariant()
    def one_probe_at_most(self) -> None:
        probes = sum(is_probe for _, is_probe in self.running)
        assert probes <= 1
        if probes and self.breaker.state(self.now) is not BreakerState.CLOSED:
            assert not self.breaker.admits(self.now)


TestCalls = Calls.TestCase


@given(st.lists(st.floats(0, 3), min_size=3, max_size=20))
def test_a_target_that_only_fails_is_always_left_alone_in_the_end(gaps: list[float]) -> None:
    breaker, now = Breaker(RULES), 0.0
    for gap in gaps:
        now += gap
        breaker.failed(now, None)
    assert breaker.state(now) is not BreakerState.CLOSED
