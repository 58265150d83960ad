"""A provider behind an open breaker is asked whether it is back, and no request has to find out."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from adapters.canonical.errors import GatewayError, NotFound, UpstreamAuth, UpstreamInternal, UpstreamUnreachable
from gateway.routing.breaker import BreakerRules, BreakerState
from gateway.routing.conditions import conditions_of
from gateway.routing.health import MAX_TARGETS, Health
from gateway.routing.probes import Probes
from gateway.routing.route import Target
from gateway.routing.router import RoutingRules
from providers.testing.scripted import ScriptedProvider
from tests.gateway.routing.walks import Walks, good, scripted, walks
from tests.gateway.server.running import until

RULES = RoutingRules(attempts=1, breaker=BreakerRules(failures=1, open_s=0.04))


class Probed(ScriptedProvider):
    """`outcomes` of its probes, in turn; the last one repeats."""

    def __init__(self, name: str, outcomes: Sequence[GatewayError | asyncio.Event | None]) -> None:
        super().__init__(name, [UpstreamUnreachable("gone")])
        self._outcomes = outcomes
        self.probes = 0

    async def probe(self) -> None:
        outcome = self._outcomes[min(self.probes, len(self._outcomes) - 1)]
        self.probes += 1
        if isinstance(outcome, asyncio.Event):
            await outcome.wait()
        elif outcome is not None:
            raise outcome


def on_the_loop(target: Target, *others: Target) -> Walks:
    """With the loop's own time, since probes sleep on it."""
    here = walks(target, *others, rules=RULES)
    clock = asyncio.get_running_loop().time
    here.health = Health(RULES.breaker, clock)
    here.router = type(here.router)(here.router.names, RULES, here.draw, clock=clock, health=here.health)
    return here


def state(here: Walks, target: Target) -> BreakerState:
    return here.health.of(target).breaker.state(asyncio.get_running_loop().time())


async def test_while_probes_fail_no_request_is_sent_and_one_is_when_they_succeed() -> None:
    provider = Probed("a", [UpstreamUnreachable("gone"), UpstreamInternal("still"), None])
    target = Target(provider, "m")
    here = on_the_loop(target, scripted("b"))
    assert await here.run() == "b"
    await until(lambda: provider.probes == 2)
    assert await here.run() == "b"
    await until(lambda: provider.probes == 3 and state(here, target) is BreakerState.HALF_OPEN)
    assert len(provider.requests) == 1
    provider.play(good("a"))
    assert await here.run() == "a"
    await here.router.aclose()


@pytest.mark.parametrize("answer", [UpstreamAuth("no"), NotFound("no list here")], ids=["auth", "not found"])
async def test_a_server_without_a_list_is_there_and_one_that_refuses_the_key_is_not(answer: GatewayError) -> None:
    provider = Probed("a", [answer])
    target = Target(provider, "m")
    here = on_the_loop(target, scripted("b"))
    await here.run()
    if isinstance(answer, NotFound):
        await until(lambda: state(here, target) is BreakerState.HALF_OPEN)
        assert provider.probes == 1
    else:
        await until(lambda: provider.probes == 3)
    await here.router.aclose()


async def test_probes_end_with_the_router() -> None:
    provider = Probed("a", [asyncio.Event()])
    here = on_the_loop(Target(provider, "m"), scripted("b"))
    await here.run()
    await until(lambda: provider.probes == 1)
    await here.router.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_target_is_watched_once_and_only_where_it_can_be_probed() -> None:
    loop = asyncio.get_running_loop()
    health, probes = Health(RULES.breaker, loop.time), Probes(loop.time)
    able, unable = health.of(Target(Probed("a", [None]), "m")), health.of(scripted("b"))
    for record in (able, able, unable):
        record.breaker.failed(loop.time(), None)
        probes.watch(record)
    assert probes.count == 1
    await probes.aclose()
    assert probes.count == 0


def test_records_of_targets_are_bounded_and_those_that_tell_something_stay() -> None:
    health = Health(BreakerRules(failures=1), lambda: 0.0)
    provider = ScriptedProvider("a")
    busy, broken = health.of(Target(provider, "busy")), health.of(Target(provider, "broken"))
    busy.in_flight = 1
    broken.breaker.failed(0.0, None)
    for number in range(MAX_TARGETS + 10):
        health.of(Target(provider, f"made-up-{number}"))
    assert len(health) == MAX_TARGETS
    assert health.of(Target(provider, "busy")) is busy
    assert health.of(Target(provider, "broken")) is broken


async def test_a_provider_that_is_gone_at_the_start_is_told_and_passed_over_until_it_is_back() -> None:
    gone, there = Probed("a", [UpstreamUnreachable("gone"), None]), Probed("b", [None])
    conditions = conditions_of({"x-team": ["a"]}, {"tier": ["gold"]})
    targets = [Target(gone, "m"), Target(gone, "n", when=conditions), Target(there, "m")]
    here = on_the_loop(*targets)
    told: list[str] = []
    here.router.look_for_providers(told.append)
    await until(lambda: bool(told))
    assert [state(here, target) for target in targets] == [BreakerState.OPEN, BreakerState.OPEN, BreakerState.CLOSED]
    gone.play(good("a"))
    there.play(good("b"))
    assert await here.run() == "b"
    assert gone.requests == []
    await until(lambda: state(here, targets[0]) is BreakerState.HALF_OPEN)
    assert await here.run() == "a"
    assert told == ["a"]
    await here.router.aclose()


async def test_a_provider_that_only_refuses_the_key_is_there() -> None:
    target = Target(Probed("a", [UpstreamAuth("no")]), "m")
    here = on_the_loop(target)
    told: list[str] = []
    here.router.look_for_providers(told.append)
    await until(lambda: cast("Probed", target.provider).probes == 1)
    await here.router.aclose()
    assert told == []
    assert state(here, target) is BreakerState.CLOSED
