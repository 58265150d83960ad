"""Who is passed over and why, where a failed request goes on, and what an observer is told of each attempt."""

import asyncio
from contextlib import aclosing

import pytest

from adapters.canonical.errors import (
    ContentRefused,
    ContextOverflow,
    GatewayError,
    InvalidRequest,
    NotReady,
    UpstreamInternal,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
)
from adapters.canonical.events import ChoiceFinished, Started, TextDelta, UsageReported
from adapters.canonical.messages import Message, Text
from adapters.canonical.request import EXPRESSIBLE_FIELDS
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from gateway.routing.breaker import BreakerRules, BreakerState
from gateway.routing.conditions import conditions_of
from gateway.routing.progress import Progress
from gateway.routing.route import Target
from gateway.routing.router import RoutingRules
from gateway.routing.strategies import Sticky, Weighted
from providers.base import Batch, Capabilities, Readiness, ReadinessState
from providers.testing.scripted import ScriptedProvider
from tests.gateway.routing.walks import FINISH, asked_of, good, provider_of, request, scripted, walks
from tests.gateway.server.running import until

FAULT = UpstreamInternal("broken", upstream_status=500)
FILTERED: list[Batch] = [[Started(id="1")], [ChoiceFinished(0, StopReason.CONTENT_FILTER, raw="content_filter")]]


class TestBreaker:
    async def test_a_failing_target_is_left_alone_and_then_tried_by_one_request(self) -> None:
        first, second = scripted("a", [FAULT]), scripted("b")
        here = walks(first, second)
        for _ in range(5):
            assert await here.run() == "b"
        assert asked_of(first) == 2
        here.now = 10.0
        provider_of(first).play(good("a"))
        assert await here.run() == "a"
        assert here.health.of(first).breaker.state(here.now) is BreakerState.CLOSED

    async def test_while_one_tries_a_half_open_target_the_others_go_elsewhere(self) -> None:
        first, second = scripted("a", [FAULT]), scripted("b")
        here = walks(first, second)
        await here.run()
        await here.run()
        here.now = 10.0
        gate = asyncio.Event()
        provider_of(first).play([gate, *good("a")])
        probe = asyncio.create_task(here.run())
        await provider_of(first).waiting.wait()
        progress = Progress()
        assert [await here.run(None, progress) for _ in range(3)] == ["b", "b", "b"]
        assert "half-open" in progress.passed_over[0][1]
        gate.set()
        assert await probe == "a"

    async def test_a_probe_whose_client_leaves_makes_room_for_the_next(self) -> None:
        first, second = scripted("a", [FAULT]), scripted("b")
        here = walks(first, second)
        await here.run()
        await here.run()
        here.now = 10.0
        provider_of(first).play([asyncio.Event()], good("a"))
        probe = asyncio.create_task(here.run())
        await provider_of(first).waiting.wait()
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
        assert await here.run() == "a"

    async def test_a_target_without_an_alternative_is_asked_though_its_breaker_is_open_but_once(self) -> None:
        target = scripted("a", [FAULT])
        here = walks(target, rules=RoutingRules(attempts=3, breaker=BreakerRules(failures=2)))
        for expected in (2, 3, 4):  # the second failure opens it
            with pytest.raises(UpstreamInternal):
                await here.run()
            assert asked_of(target) == expected
        provider_of(target).play(good())
        assert await here.run() == "good"
        assert here.health.of(target).breaker.state(here.now) is BreakerState.CLOSED

    async def test_where_all_are_open_the_one_that_may_be_asked_soonest_is(self) -> None:
        first, second = scripted("a", [FAULT]), scripted("b", [FAULT])
        here = walks(first, second)
        for step in range(2):
            here.now = step * 1.0
            with pytest.raises(UpstreamInternal):
                await here.run()
        here.health.of(first).breaker.stay_open(5.0)
        before = asked_of(first), asked_of(second)
        with pytest.raises(UpstreamInternal):
            await here.run()
        assert (asked_of(first), asked_of(second)) == (before[0], before[1] + 1)

    async def test_what_the_request_got_wrong_is_no_failure_of_the_target(self) -> None:
        target = scripted("a", [InvalidRequest("no")])
        here = walks(target, scripted("b"))
        for _ in range(5):
            with pytest.raises(InvalidRequest):
                await here.run()
        assert here.health.of(target).breaker.state(here.now) is BreakerState.CLOSED

    async def test_a_fault_inside_an_answer_counts_as_well(self) -> None:
        target = scripted("a", [[TextDelta(0, 0, "par")], FAULT])
        here = walks(target, scripted("b"))
        for _ in range(2):
            with pytest.raises(UpstreamInternal):
                await here.run()
        assert await here.run() == "b"


class TestPauses:
    async def test_a_pause_that_a_target_asked_for_holds_for_other_requests_too(self) -> None:
        first, second = scripted("a", [UpstreamRateLimited("slow down", retry_after_s=30)], good("a")), scripted("b")
        here = walks(first, second)
        assert await here.run() == "b"
        progress = Progress()
        assert await here.run(None, progress) == "b"
        assert asked_of(first) == 1
        assert "asked for a pause" in progress.passed_over[0][1]
        here.now = 30.0
        assert await here.run() == "a"

    async def test_a_pause_is_no_failure(self) -> None:
        target = scripted("a", [UpstreamRateLimited("slow down", retry_after_s=1)])
        here = walks(target, scripted("b"))
        for step in range(5):
            here.now = step * 2.0
            await here.run()
        assert here.health.of(target).breaker.state(here.now) is BreakerState.CLOSED

    async def test_a_paused_target_alone_is_asked(self) -> None:
        target = scripted("a", [UpstreamRateLimited("slow down", retry_after_s=30)], good("a"))
        here = walks(target)
        with pytest.raises(UpstreamRateLimited):
            await here.run()
        assert await here.run() == "a"

    async def test_what_should_not_be_retried_is_not_tried_again_but_elsewhere(self) -> None:
        first, second = scripted("a", [UpstreamOverloaded("x", should_retry=False)]), scripted("b")
        assert await walks(first, second, rules=RoutingRules(attempts=3)).run() == "b"
        assert asked_of(first) == 1

    async def test_what_should_be_retried_is_whatever_its_status_says(self) -> None:
        target = scripted("a", [InvalidRequest("odd", should_retry=True)], good("a"))
        assert await walks(target, rules=RoutingRules(attempts=2)).run() == "a"
        always = scripted("b", [InvalidRequest("odd", should_retry=True)])
        with pytest.raises(InvalidRequest):
            await walks(always, rules=RoutingRules(attempts=2)).run()
        assert asked_of(always) == 2


async def test_a_model_that_is_not_ready_is_passed_over_and_asked_where_it_is_alone() -> None:
    loading = Readiness(ReadinessState.LOADING, "weights are loading")
    first, second = Target(ScriptedProvider("a", good("a"), readiness=loading), "m"), scripted("b")
    progress = Progress()
    assert await walks(first, second).run(None, progress) == "b"
    assert progress.passed_over == [(first, "weights are loading")]
    assert await walks(first).run() == "a"
    assert await walks(first, scripted("b", [NotReady("x")])).run() == "a"


class TestFallbacks:
    async def test_on_failure_follows_the_targets_whatever_the_strategy(self) -> None:
        targets = [scripted("a", [FAULT]), scripted("b", [FAULT])]
        last = scripted("c")
        here = walks(*targets, on_failure=(last,), strategy=Sticky(lambda: 0.5))
        assert await here.run() == "c"
        assert sorted(name for name, _, _ in here.ways()) == ["a", "b", "c"]

    @pytest.mark.parametrize("error", [ContextOverflow("too long"), ContentRefused("no")], ids=lambda e: e.code)
    async def test_a_prompt_that_one_target_refuses_goes_where_run_yaml_says(self, error: GatewayError) -> None:
        first, other, detour = scripted("a", [error]), scripted("b"), scripted("c")
        assert await walks(first, other, detours={type(error): (detour,)}).run() == "c"
        assert asked_of(other) == 0
        with pytest.raises(type(error)):
            await walks(scripted("a", [error]), other).run()

    async def test_a_detour_is_taken_once(self) -> None:
        error = ContextOverflow("too long")
        detour = scripted("b", [error])
        with pytest.raises(ContextOverflow):
            await walks(scripted("a", [error]), detours={ContextOverflow: (detour,)}).run()
        assert asked_of(detour) == 1

    async def test_an_answer_that_a_filter_took_before_it_began_goes_on_elsewhere(self) -> None:
        detours = {ContentRefused: (scripted("b"),)}
        assert await walks(scripted("a", FILTERED), detours=detours).run() == "b"

    async def test_a_filter_without_a_detour_and_one_after_the_first_word_are_answers(self) -> None:
        assert await walks(scripted("a", FILTERED)).run() == ""
        half: list[Batch] = [[TextDelta(0, 0, "half")], FILTERED[1]]
        detour = scripted("b")
        assert await walks(scripted("a", half), detours={ContentRefused: (detour,)}).run() == "half"
        assert asked_of(detour) == 0


class TestTags:
    async def test_only_targets_with_all_the_tags_are_asked(self) -> None:
        plain, european = scripted("a"), scripted("b", tags=("eu", "fast"))
        progress = Progress(headers={"x-gateway-tags": "fast, eu"})
        assert await walks(plain, european).run(None, progress) == "b"
        assert progress.passed_over == [(plain, "it lacks the tag eu, fast")]

    @pytest.mark.parametrize("value", ['"eu"', '["eu"]', '"fast,eu"'])
    async def test_metadata_ask_where_targets_have_tags(self, value: str) -> None:
        here = walks(scripted("a"), scripted("b", tags=("eu", "fast")))
        assert await here.run(request(metadata=f'{{"tags": {value}}}'.encode())) == "b"

    async def test_metadata_of_names_without_tags_are_the_clients_own(self) -> None:
        target = scripted("a")
        assert await walks(target).run(request(metadata=b'{"tags": "eu"}')) == "a"
        assert provider_of(target).requests[0].metadata == b'{"tags": "eu"}'

    @pytest.mark.parametrize(
        ("given", "sent"), [(b'{"tags": ["eu"]}', None), (b'{"tags":"eu","run":"7"}', b'{"run":"7"}')]
    )
    async def test_tags_of_metadata_reach_no_upstream(self, given: bytes, sent: bytes | None) -> None:
        target = scripted("b", tags=("eu",))
        await walks(scripted("a"), target).run(request(metadata=given))
        assert provider_of(target).requests[0].metadata == sent

    async def test_a_target_that_takes_no_metadata_can_be_chosen_by_them(self) -> None:
        lacking = Capabilities(fields=EXPRESSIBLE_FIELDS - {"metadata"})
        target = Target(ScriptedProvider("b", good("b"), capabilities=lacking), "m", tags=frozenset(("eu",)))
        assert await walks(scripted("a"), target).run(request(metadata=b'{"tags": "eu"}')) == "b"
        labelled = request(metadata=b'{"tags": "eu", "run": "7"}')
        assert await walks(scripted("a"), target).run(labelled) == "b"  # what is left of them is a hint

    @pytest.mark.parametrize("tags", ["eu, us", "us"])
    async def test_tags_that_no_target_has_are_refused_also_for_fallbacks(self, tags: str) -> None:
        fallback = scripted("b")
        here = walks(scripted("a", tags=("eu",)), on_failure=(fallback,))
        with pytest.raises(InvalidRequest, match="x-gateway-tags: no target of the model 'alias'"):
            await here.run(None, Progress(headers={"x-gateway-tags": tags}))

    async def test_a_fallback_has_no_tags(self) -> None:
        fallback = scripted("b")
        here = walks(scripted("a", [FAULT], tags=("eu",)), on_failure=(fallback,))
        with pytest.raises(UpstreamInternal):
            await here.run(None, Progress(headers={"x-gateway-tags": "eu"}))
        assert asked_of(fallback) == 0

    async def test_metadata_that_are_no_tags_are_refused_by_name(self) -> None:
        with pytest.raises(InvalidRequest, match=r"metadata\.tags"):
            await walks(scripted("a", tags=("eu",))).run(request(metadata=b'{"tags": 5}'))


RESEARCH = conditions_of({"X-Team": ["research", "lab-*"]}, {})
GOLD = conditions_of({}, {"tier": ["gold", "silver"]})


class TestConditions:
    @pytest.mark.parametrize("team", ["research", "lab-", "lab-7"])
    async def test_a_target_is_asked_where_a_header_is_as_it_says(self, team: str) -> None:
        asked = Progress(headers={"x-team": team})
        assert await walks(scripted("a", when=RESEARCH), scripted("b")).run(None, asked) == "a"

    @pytest.mark.parametrize("headers", [{}, {"x-team": ""}, {"x-team": "researchers"}, {"x-team": "my lab-7"}])
    async def test_it_is_passed_over_where_the_header_is_not(self, headers: dict[str, str]) -> None:
        first, progress = scripted("a", when=RESEARCH), Progress(headers=headers)
        assert await walks(first, scripted("b")).run(None, progress) == "b"
        assert progress.passed_over == [(first, "its condition on the header x-team does not hold")]

    @pytest.mark.parametrize(
        ("metadata", "answers"),
        [
            (b'{"tier":"silver"}', "a"),
            (b'{"tier":"bronze"}', "b"),
            (b'{"Tier":"gold"}', "b"),
            (b'{"tier":["gold"]}', "b"),
            (b"{}", "b"),
            (None, "b"),
        ],
    )
    async def test_metadata_of_the_body_decide(self, metadata: bytes | None, answers: str) -> None:
        here = walks(scripted("a", when=GOLD), scripted("b"))
        assert await here.run(request(metadata=metadata)) == answers

    async def test_metadata_that_decide_still_reach_the_upstream(self) -> None:
        target = scripted("a", when=GOLD)
        await walks(target).run(request(metadata=b'{"tier":"gold"}'))
        assert provider_of(target).requests[0].metadata == b'{"tier":"gold"}'

    async def test_all_conditions_of_a_target_have_to_hold(self) -> None:
        both = conditions_of({"x-team": ["*"]}, {"tier": ["gold"]})
        here = walks(scripted("a", when=both), scripted("b"))
        team = Progress(headers={"x-team": "any"})
        assert await here.run(request(metadata=b'{"tier":"gold"}'), team) == "a"
        assert await here.run(request(metadata=b'{"tier":"gold"}'), Progress()) == "b"
        assert await here.run(request(), Progress(headers={"x-team": "any"})) == "b"

    async def test_a_strategy_orders_what_is_left(self) -> None:
        targets = [scripted(name, when=RESEARCH if name != "c" else None) for name in "abc"]
        assert await walks(*targets, strategy=Weighted(lambda: 0.1)).run() == "c"

    async def test_fallbacks_take_what_no_target_is_for(self) -> None:
        progress = Progress()
        assert await walks(scripted("a", when=RESEARCH), on_failure=(scripted("b"),)).run(None, progress) == "b"
        assert len(progress.passed_over) == 1

    async def test_a_request_for_which_no_target_is_gets_told_on_what_it_depends(self) -> None:
        with pytest.raises(
            InvalidRequest, match=r"no target of the model 'alias' .* the header x-team, metadata\.tier"
        ):
            await walks(scripted("a", when=RESEARCH), scripted("b", when=GOLD)).run()

    async def test_conditions_and_tags_both_have_to_hold(self) -> None:
        here = walks(
            scripted("a", tags=("eu",), when=RESEARCH), scripted("b", tags=("eu",)), scripted("c", when=RESEARCH)
        )
        assert await here.run(None, Progress(headers={"x-team": "research", "x-gateway-tags": "eu"})) == "a"
        assert await here.run(None, Progress(headers={"x-gateway-tags": "eu"})) == "b"

    async def test_what_is_no_generation_has_headers_and_no_metadata(self) -> None:
        first, second, third = scripted("a", when=GOLD), scripted("b", when=RESEARCH), scripted("c")
        here = walks(first, second, third)

        async def call(target: Target) -> str:
            return target.provider.name

        assert await here.router.ask("alias", Progress(headers={"x-team": "research"}), call) == "b"
        assert await here.router.ask("alias", Progress(), call) == "c"


class TestSticky:
    async def first_of(self, names: int, asked: object, progress: Progress | None = None) -> str:
        targets = [scripted(f"p{number}") for number in range(names)]
        here = walks(*targets, strategy=Sticky(lambda: 0.5))
        return await here.run(asked, progress)  # type: ignore[arg-type]

    def conversation(self, *texts: str, **fields: object) -> object:
        roles = ("system", "user", "assistant", "user")
        messages = tuple(
            [Message(role=role, parts=(Text(text=text),)) for role, text in zip(roles, texts, strict=False)]
        )
        return request(messages=messages, **fields)

    async def test_the_turns_of_a_conversation_stay_and_conversations_are_spread(self) -> None:
        firsts = set()
        for number in range(20):
            begun = await self.first_of(8, self.conversation("be good", f"question {number}"))
            grown = await self.first_of(8, self.conversation("be good", f"question {number}", "answer", "more"))
            assert begun == grown
            firsts.add(begun)
        assert len(firsts) > 3

    async def test_a_session_stays_whatever_is_said(self) -> None:
        for number in range(5):
            session = {"session_id": f"s{number}"}
            one = await self.first_of(8, self.conversation("a", "b", **session))
            assert one == await self.first_of(8, self.conversation("c", "d", **session))
            header = Progress(headers={"x-gateway-session": f"s{number}"})
            assert one == await self.first_of(8, self.conversation("e", "f"), header)


class TestAttempts:
    async def test_every_attempt_is_told_once_with_its_times_and_usage(self) -> None:
        usage = Usage(prompt_tokens=1, completion_tokens=2)
        first = scripted("a", [FAULT], [[TextDelta(0, 0, "x"), FINISH, UsageReported(usage)]])
        here = walks(first, rules=RoutingRules(attempts=2), strategy=None)
        progress = Progress(key="team", request_id="r1")
        await here.run(request(stream=True), progress)
        assert here.ways() == [("a", "first", "failed"), ("a", "again", "answered")]
        failed, answered = here.ends
        assert here.starts == here.ends
        assert (failed.error, failed.first_output, failed.usage) == (FAULT, None, None)
        assert (answered.error, answered.first_output, answered.ended, answered.usage) == (None, 0.0, 0.0, usage)
        assert (answered.progress.model, answered.progress.key, answered.progress.stream) == ("alias", "team", True)
        assert here.health.of(first).in_flight == 0

    async def test_a_client_that_leaves_ends_its_attempt(self) -> None:
        target = scripted("a", [[TextDelta(0, 0, "x")], asyncio.Event()])
        here = walks(target)
        async with aclosing(here.router.stream(request(), Progress(), str)) as batches:
            await anext(batches)
            assert here.health.of(target).in_flight == 1
        assert here.ways() == [("a", "first", "cancelled")]
        assert here.health.of(target).in_flight == 0

    async def test_a_silent_target_is_told_as_its_failure_and_a_slow_reader_is_not(self) -> None:
        rules = RoutingRules(attempts=1, total_s=0.3)
        here = walks(scripted("a", [asyncio.Event()]), rules=rules)
        with pytest.raises(UpstreamTimeout):
            await here.run()
        assert here.ways() == [("a", "first", "failed")]

        slow = walks(scripted("a", [[TextDelta(0, 0, "x")], [FINISH]]), rules=rules)
        batches = slow.router.stream(request(), Progress(), str)
        await anext(batches)
        await until(lambda: slow.router._deadlines.count == 0, within_s=5)
        with pytest.raises(UpstreamTimeout):
            await anext(batches)
        assert slow.ways() == [("a", "first", "cancelled")]

    async def test_answers_that_are_no_streams_are_told_as_well(self) -> None:
        first, second = scripted("a"), scripted("b")
        here = walks(first, second)

        async def call(target: Target) -> str:
            if target is first:
                raise FAULT
            return "good"

        assert await here.router.ask("alias", Progress(), call) == "good"
        assert here.ways() == [("a", "first", "failed"), ("b", "failover", "answered")]


class TestHedges:
    async def test_a_slow_target_is_overtaken_and_cancelled(self) -> None:
        first, second = scripted("a", [asyncio.Event()]), scripted("b")
        here = walks(first, second, hedge_s=0.01)
        progress = Progress()
        assert await here.run(None, progress) == "b"
        assert here.ways() == [("a", "first", "cancelled"), ("b", "hedge", "answered")]
        assert progress.target is second
        assert provider_of(first).open_streams == 0

    async def test_a_target_that_answers_in_time_is_not_hedged(self) -> None:
        second = scripted("b")
        assert await walks(scripted("a"), second, hedge_s=5).run() == "a"
        assert asked_of(second) == 0

    async def test_the_first_one_may_still_win(self) -> None:
        gate = asyncio.Event()
        first, second = scripted("a", [gate, *good("a")]), scripted("b", [asyncio.Event()])
        here = walks(first, second, hedge_s=0.01)
        answer = asyncio.create_task(here.run())
        await provider_of(second).waiting.wait()
        gate.set()
        assert await answer == "a"
        assert here.ways() == [("b", "hedge", "cancelled"), ("a", "first", "answered")]
        assert provider_of(second).open_streams == 0

    async def test_one_that_fails_leaves_the_answer_to_the_other(self) -> None:
        broken, answering = asyncio.Event(), asyncio.Event()
        first, second = scripted("a", [broken, FAULT]), scripted("b", [answering, *good("b")])
        third = scripted("c")
        here = walks(first, second, third, hedge_s=0.01)
        answer = asyncio.create_task(here.run())
        await provider_of(second).waiting.wait()
        broken.set()
        await until(lambda: bool(here.ends))
        answering.set()
        assert await answer == "b"
        assert here.ways() == [("a", "first", "failed"), ("b", "hedge", "answered")]
        assert asked_of(third) == 0

    async def test_when_both_fail_the_next_one_is_asked(self) -> None:
        gate = asyncio.Event()
        first, second, third = scripted("a", [gate, FAULT]), scripted("b", [gate, FAULT]), scripted("c")
        here = walks(first, second, third, hedge_s=0.01)
        answer = asyncio.create_task(here.run())
        await provider_of(second).waiting.wait()
        gate.set()
        assert await answer == "c"
        assert {way[:1] + way[2:] for way in here.ways()} == {("a", "failed"), ("b", "failed"), ("c", "answered")}

    async def test_a_client_that_leaves_cancels_both(self) -> None:
        first, second = scripted("a", [asyncio.Event()]), scripted("b", [asyncio.Event()])
        here = walks(first, second, hedge_s=0.01)
        answer = asyncio.create_task(here.run())
        await provider_of(second).waiting.wait()
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
        assert (provider_of(first).open_streams, provider_of(second).open_streams) == (0, 0)
        assert {way[2] for way in here.ways()} == {"cancelled"}

    async def test_the_deadline_ends_both(self) -> None:
        first, second = scripted("a", [asyncio.Event()]), scripted("b", [asyncio.Event()])
        here = walks(first, second, hedge_s=0.01, rules=RoutingRules(total_s=0.05))
        with pytest.raises(UpstreamTimeout):
            await here.run()
        assert (provider_of(first).open_streams, provider_of(second).open_streams) == (0, 0)


async def test_a_request_that_asks_twice_walks_anew_each_time() -> None:
    """Whoever asks several times for one request, as tools do, tells the router the same Progress."""
    paused = scripted("a", [UpstreamRateLimited("slow down", retry_after_s=30)], good("a"))
    other = scripted("b", [UpstreamRateLimited("slow down", retry_after_s=30)])
    here, progress = walks(paused, other), Progress()
    with pytest.raises(UpstreamRateLimited):
        await here.run(None, progress)
    assert await here.run(None, progress) == "a"
