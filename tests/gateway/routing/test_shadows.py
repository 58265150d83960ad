"""Copies of traffic: a share of it, never in a client's way, bounded, and gone when the gateway stops."""

import asyncio

import pytest

from adapters.canonical.errors import UpstreamInternal
from adapters.canonical.events import TextDelta
from gateway.routing.progress import Progress
from gateway.routing.route import Shadow, Target
from gateway.routing.router import RoutingRules
from gateway.routing.shadows import MAX_SHADOWS, Shadows
from providers.base import Capabilities
from providers.testing.scripted import ScriptedProvider
from tests.gateway.routing.walks import FINISH, Walks, asked_of, provider_of, request, scripted, walks
from tests.gateway.server.running import until


def shadows_of(here: Walks) -> Shadows:
    return here.router.shadows


async def test_a_share_of_the_answered_requests_is_copied() -> None:
    shadow = scripted("s")
    here = walks(scripted("a"), shadow=Shadow(shadow, 0.25))
    draws = iter([0.1, 0.24, 0.25, 0.9])
    here.draw = draws.__next__
    for _ in range(4):
        assert await here.run() == "a"
    await until(lambda: asked_of(shadow) == 2 and shadows_of(here).count == 0)
    assert here.ways().count(("s", "shadow", "answered")) == 2


async def test_a_request_that_failed_is_not_copied() -> None:
    shadow = scripted("s")
    here = walks(scripted("a", [UpstreamInternal("x")]), shadow=Shadow(shadow, 1))
    with pytest.raises(UpstreamInternal):
        await here.run()
    assert asked_of(shadow) == 0


@pytest.mark.parametrize("fault", [UpstreamInternal("x"), RuntimeError("a bug")], ids=["upstream", "bug"])
async def test_a_shadow_that_fails_fails_alone(fault: Exception) -> None:
    shadow = scripted("s", [[TextDelta(0, 0, "x")], fault])
    here = walks(scripted("a"), shadow=Shadow(shadow, 1))
    assert await here.run() == "a"
    await until(lambda: len(here.ends) == 2 and shadows_of(here).count == 0)
    assert here.faults == ([fault] if isinstance(fault, RuntimeError) else [])
    assert here.health.of(shadow).in_flight == 0


async def test_a_shadow_that_hangs_holds_nothing_up_and_ends_with_the_router() -> None:
    shadow = scripted("s", [asyncio.Event()])
    here = walks(scripted("a"), shadow=Shadow(shadow, 1))
    assert await here.run() == "a"
    await provider_of(shadow).waiting.wait()
    await here.router.aclose()
    assert (shadows_of(here).count, provider_of(shadow).open_streams) == (0, 0)
    assert here.ways()[-1] == ("s", "shadow", "cancelled")


async def test_a_shadow_has_the_deadline_of_a_request() -> None:
    shadow = scripted("s", [asyncio.Event()])
    here = walks(scripted("a"), shadow=Shadow(shadow, 1), rules=RoutingRules(total_s=0.02))
    await here.run()
    await until(lambda: len(here.ends) == 2)
    assert here.ways()[-1] == ("s", "shadow", "failed")


async def test_beyond_the_bound_no_copy_is_made() -> None:
    shadow = scripted("s", [asyncio.Event()])
    here = walks(scripted("a"), shadow=Shadow(shadow, 1))
    progress = Progress()
    for _ in range(MAX_SHADOWS):
        await here.run()
    assert await here.run(None, progress) == "a"
    assert shadows_of(here).count == MAX_SHADOWS
    assert "shadows are running" in progress.passed_over[0][1]
    await here.router.aclose()


async def test_what_a_shadow_cannot_express_is_not_copied() -> None:
    shadow = Target(ScriptedProvider("s", capabilities=Capabilities(fields=frozenset())), "m")
    here = walks(scripted("a"), shadow=Shadow(shadow, 1))
    progress = Progress()
    assert await here.run(request(max_tokens=5), progress) == "a"
    assert progress.passed_over[0][0] is shadow


async def test_a_request_that_asks_for_tags_is_not_copied() -> None:
    shadow = scripted("s")
    here = walks(scripted("a", tags=("eu",)), shadow=Shadow(shadow, 1))
    assert await here.run(None, Progress(headers={"x-gateway-tags": "eu"})) == "a"
    assert shadows_of(here).count == 0


async def test_the_client_reads_on_while_its_copy_runs() -> None:
    gate = asyncio.Event()
    target, shadow = scripted("a", [[TextDelta(0, 0, "a")], gate, [FINISH]]), scripted("s")
    here = walks(target, shadow=Shadow(shadow, 1))
    answer = asyncio.create_task(here.run())
    await until(lambda: asked_of(shadow) == 1)
    gate.set()
    assert await answer == "a"
