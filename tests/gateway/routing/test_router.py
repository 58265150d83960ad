"""Tries, failover and the deadline: before the first output anything may be asked again, after it nothing."""

import asyncio
from contextlib import aclosing

import pytest

from adapters.canonical.errors import (
    BadUpstreamResponse,
    ContextOverflow,
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    NotReady,
    StaleConnection,
    StreamTruncated,
    UnsupportedParameter,
    UpstreamAuth,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import Message, Text
from adapters.canonical.request import LoraAdapter, Request, Sampling, Tool
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from gateway.routing.breaker import BreakerState
from gateway.routing.defaults import Defaults
from gateway.routing.fitting import Spelling
from gateway.routing.names import ModelLists, Names, ProviderRules
from gateway.routing.route import Route, Target
from gateway.routing.router import Progress, Router, RoutingRules
from providers.base import Batch, Capabilities
from providers.testing.scripted import Script, ScriptedProvider
from tests.gateway.server.running import until

FINISH = ChoiceFinished(0, StopReason.STOP)
GOOD: list[Batch] = [[Started(id="1")], [TextDelta(0, 0, "good")], [FINISH]]


def text(value: str) -> Event:
    return TextDelta(0, 0, value)


def router_for(*targets: Target, rules: RoutingRules | None = None, defaults: Defaults | None = None) -> Router:
    providers = {target.provider.name: ProviderRules(target.provider) for target in targets}
    lists = ModelLists({name: each.provider for name, each in providers.items()}, lambda: 0.0)
    names = Names(providers, {"alias": Route(targets, defaults)}, lists)
    return Router(names, rules or RoutingRules(), random=lambda: 1.0)


def scripted(name: str, *scripts: Script) -> Target:
    return Target(ScriptedProvider(name, *scripts), "m")


def provider_of(target: Target) -> ScriptedProvider:
    assert isinstance(target.provider, ScriptedProvider)
    return target.provider


def request(**fields: object) -> Request:
    messages = (Message(role="user", parts=(Text(text="hi"),)),)
    return Request(**{"model": "alias", "dialect": "chat", "messages": messages, **fields})  # type: ignore[arg-type]


same: Spelling = str


async def run(router: Router, asked: Request | None = None, progress: Progress | None = None) -> str:
    """The text of the answer."""
    return "".join([event.text for event in await events_of(router, asked, progress) if isinstance(event, TextDelta)])


async def events_of(router: Router, asked: Request | None = None, progress: Progress | None = None) -> list[Event]:
    events: list[Event] = []
    async with aclosing(router.stream(asked or request(), progress or Progress(), same)) as batches:
        async for batch in batches:
            events += batch
    return events


async def test_a_custom_tool_that_a_target_called_as_a_function_is_called_as_what_it_is() -> None:
    called: Batch = [
        ToolCallStarted(0, 0, "c", "patch"),
        ToolArgumentsDelta(0, 0, '{"input": "text"}'),
        ToolCallFinished(0, 0),
    ]
    target = scripted("a", [[Started(id="1")], called, [FINISH]])
    found = await events_of(router_for(target), request(tools=(Tool(kind="custom", name="patch"),)))
    assert found[1:4] == [
        ToolCallStarted(0, 0, "c", "patch", "custom"),
        ToolArgumentsDelta(0, 0, "text"),
        ToolCallFinished(0, 0),
    ]


async def test_the_first_batch_brings_the_first_output_and_one_start() -> None:
    target = scripted("a", [[Started(id="1")], UpstreamUnreachable("reset")], GOOD)
    events = await events_of(router_for(target))
    assert events == [Started(id="1"), text("good"), FINISH]


async def test_the_target_is_told_with_the_first_batch() -> None:
    first, second = scripted("a", [UpstreamUnreachable("x")]), scripted("b", GOOD)
    progress = Progress()
    async with aclosing(router_for(first, second).stream(request(), progress, same)) as batches:
        await anext(batches)
        assert progress.target is second
        assert progress.attempts == 3
        assert [type(failure) for failure in progress.failures] == [UpstreamUnreachable]


RETRIED = [UpstreamUnreachable("x"), UpstreamOverloaded("x"), StreamTruncated("x"), BadUpstreamResponse("x")]


@pytest.mark.parametrize("error", RETRIED, ids=lambda error: type(error).__name__)
async def test_a_passing_fault_before_the_first_output_is_tried_again(error: GatewayError) -> None:
    target = scripted("a", [error], GOOD)
    assert await run(router_for(target)) == "good"
    assert len(provider_of(target).requests) == 2


async def test_the_tries_of_one_target_are_bounded() -> None:
    target = scripted("a", [UpstreamUnreachable("x")])
    with pytest.raises(UpstreamUnreachable):
        await run(router_for(target, rules=RoutingRules(attempts=3)))
    assert len(provider_of(target).requests) == 3


async def test_a_kept_connection_that_had_ended_costs_no_try_no_wait_and_no_trust_in_the_target() -> None:
    scripts: list[Script] = [[StaleConnection("x")], GOOD]
    target = scripted("a", *scripts * 20)
    router = router_for(target, rules=RoutingRules(attempts=1))
    for _ in range(20):
        progress = Progress()
        assert await run(router, progress=progress) == "good"
        assert progress.attempts == 2
    assert router.health.of(target).breaker.state(0.0) is BreakerState.CLOSED


async def test_a_connection_that_ends_once_more_is_a_failure_like_others() -> None:
    target = scripted("a", [StaleConnection("x")])
    with pytest.raises(StaleConnection):
        await run(router_for(target, rules=RoutingRules(attempts=2)))
    assert len(provider_of(target).requests) == 3


@pytest.mark.parametrize(
    "error", [UpstreamAuth("x"), NotReady("loading"), ModelNotFound("gone")], ids=lambda error: type(error).__name__
)
async def test_a_lasting_fault_goes_to_the_next_target_at_once(error: GatewayError) -> None:
    first, second = scripted("a", [error]), scripted("b", GOOD)
    assert await run(router_for(first, second)) == "good"
    assert len(provider_of(first).requests) == 1


async def test_a_model_that_no_target_has_is_not_found() -> None:
    with pytest.raises(ModelNotFound, match="b"):
        await run(router_for(scripted("a", [ModelNotFound("a")]), scripted("b", [ModelNotFound("b")])))


@pytest.mark.parametrize("error", [InvalidRequest("x"), ContextOverflow("x")], ids=lambda error: type(error).__name__)
async def test_a_wrong_request_is_neither_tried_again_nor_elsewhere(error: GatewayError) -> None:
    first, second = scripted("a", [error]), scripted("b", GOOD)
    with pytest.raises(type(error)):
        await run(router_for(first, second))
    assert len(provider_of(first).requests) == 1
    assert provider_of(second).requests == []


async def test_nothing_is_tried_again_after_the_first_output() -> None:
    first, second = scripted("a", [[text("par")], UpstreamUnreachable("reset")]), scripted("b", GOOD)
    batches = router_for(first, second).stream(request(), Progress(), same)
    assert await anext(batches) == [text("par")]
    with pytest.raises(UpstreamUnreachable, match="reset"):
        await anext(batches)
    assert (len(provider_of(first).requests), provider_of(second).requests) == (1, [])


async def test_a_stream_without_a_finish_is_truncated() -> None:
    with pytest.raises(StreamTruncated):
        await run(router_for(scripted("a", [[text("par")]])))


async def test_a_choice_that_never_came_is_truncated_too() -> None:
    with pytest.raises(StreamTruncated, match="choice 1"):
        await run(router_for(scripted("a", [[text("x"), FINISH]])), request(n=2))


async def test_a_stream_without_anything_is_tried_again() -> None:
    target = scripted("a", [], GOOD)
    assert await run(router_for(target)) == "good"


@pytest.mark.parametrize("after", [text("more"), FINISH], ids=["output", "second finish"])
@pytest.mark.parametrize("same_batch", [True, False])
async def test_a_choice_ends_once(after: Event, same_batch: bool) -> None:
    script = [[text("x"), FINISH, after]] if same_batch else [[text("x"), FINISH], [after]]
    target = scripted("a", script)
    with pytest.raises(BadUpstreamResponse):
        await run(router_for(target, rules=RoutingRules(attempts=1)))


async def test_usage_after_the_finish_is_delivered_and_known() -> None:
    usage = UsageReported(Usage(prompt_tokens=1, completion_tokens=2))
    progress = Progress()
    events = await events_of(router_for(scripted("a", [[text("x")], [FINISH], [usage]])), None, progress)
    assert events[-1] == usage
    assert progress.usage == usage.usage


async def test_a_fault_after_the_last_finish_takes_nothing_away() -> None:
    assert await run(router_for(scripted("a", [[text("x"), FINISH], UpstreamUnreachable("reset")]))) == "x"


async def test_retry_after_is_obeyed() -> None:
    target = scripted("a", [UpstreamRateLimited("x", retry_after_s=0.05)], GOOD)
    began = asyncio.get_running_loop().time()
    assert await run(router_for(target)) == "good"
    assert asyncio.get_running_loop().time() - began >= 0.049


@pytest.mark.parametrize("rules", [RoutingRules(max_wait_s=20), RoutingRules(max_wait_s=90, total_s=25)])
async def test_a_wait_beyond_the_limits_is_not_taken_and_told(rules: RoutingRules) -> None:
    target = scripted("a", [UpstreamRateLimited("x", retry_after_s=30, upstream_status=429)])
    with pytest.raises(UpstreamRateLimited) as caught:
        await run(router_for(target, rules=rules))
    assert caught.value.retry_after_s == 30
    assert len(provider_of(target).requests) == 1


async def test_another_target_answers_while_one_asks_for_a_pause() -> None:
    first, second = scripted("a", [UpstreamRateLimited("x", retry_after_s=1)]), scripted("b", GOOD)
    assert await run(router_for(first, second)) == "good"
    assert len(provider_of(first).requests) == 1


async def test_the_smallest_wait_is_told_after_all_failed() -> None:
    targets = [
        scripted("a", [UpstreamRateLimited("a", retry_after_s=40, upstream_status=429)]),
        scripted("b", [UpstreamOverloaded("b", retry_after_s=30, upstream_status=503)]),
        scripted("c", [UpstreamUnreachable("c")]),
    ]
    with pytest.raises(UpstreamOverloaded) as caught:  # the last one that an upstream said
        await run(router_for(*targets, rules=RoutingRules(attempts=1)))
    assert caught.value.retry_after_s == 30


async def test_the_whole_deadline_ends_a_silent_target() -> None:
    target = scripted("a", [asyncio.Event()])
    with pytest.raises(UpstreamTimeout):
        await run(router_for(target, rules=RoutingRules(total_s=0.02)))
    assert provider_of(target).open_streams == 0


async def test_the_whole_deadline_ends_a_stream_that_has_begun() -> None:
    target = scripted("a", [[text("x")], asyncio.Event()])
    with pytest.raises(UpstreamTimeout):
        await run(router_for(target, rules=RoutingRules(total_s=0.02)))
    assert provider_of(target).open_streams == 0


async def test_cancelling_frees_the_provider() -> None:
    target = scripted("a", [[text("x")], asyncio.Event()])
    task = asyncio.ensure_future(run(router_for(target)))
    await provider_of(target).waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert provider_of(target).open_streams == 0


async def test_leaving_early_frees_the_provider() -> None:
    target = scripted("a", [[text("x")], asyncio.Event()])
    async with aclosing(router_for(target).stream(request(), Progress(), same)) as batches:
        await anext(batches)
        assert provider_of(target).open_streams == 1
    assert provider_of(target).open_streams == 0


async def test_a_later_target_that_cannot_express_the_request_leaves_the_first_error() -> None:
    first = scripted("a", [UpstreamOverloaded("busy")])
    second = Target(ScriptedProvider("b", GOOD, capabilities=Capabilities(fields=frozenset())), "m")
    with pytest.raises(UpstreamOverloaded, match="busy"):
        await run(router_for(first, second), request(max_tokens=5))


async def test_a_target_that_cannot_express_the_request_is_passed_over_and_the_reason_is_known() -> None:
    first = Target(ScriptedProvider("a", GOOD, capabilities=Capabilities(fields=frozenset())), "m")
    progress = Progress()
    assert await run(router_for(first, scripted("b", GOOD)), request(max_tokens=5), progress) == "good"
    assert provider_of(first).requests == []
    assert progress.passed_over == [(first, "max_tokens: not supported by the model 'alias'")]


async def test_what_no_target_can_express_is_refused_as_the_first_one_says_it() -> None:
    first = Target(ScriptedProvider("a", GOOD, capabilities=Capabilities(fields=frozenset({"n"}))), "m")
    second = Target(ScriptedProvider("b", GOOD, capabilities=Capabilities(fields=frozenset({"max_tokens"}))), "m")
    with pytest.raises(UnsupportedParameter, match="max_tokens"):
        await run(router_for(first, second), request(max_tokens=5, n=2))


async def test_dropped_names_are_told() -> None:
    provider = ScriptedProvider("a", GOOD, capabilities=Capabilities(fields=frozenset()))
    progress = Progress()
    await run(router_for(Target(provider, "m", drops_unsupported=True)), request(max_tokens=5), progress)
    assert progress.dropped == ("max_tokens",)


async def test_the_provider_gets_its_own_model_name_and_the_adapter() -> None:
    provider = ScriptedProvider("a", GOOD)
    await run(router_for(Target(provider, "base", "sql")))
    assert (provider.requests[0].model, provider.requests[0].adapter) == ("base", LoraAdapter(name="sql"))


async def test_defaults_fill_what_the_client_left_out_and_nothing_else() -> None:
    target = scripted("a", GOOD)
    router = router_for(target, defaults=Defaults({"max_tokens": 64, "temperature": 0.2, "reasoning.effort": "low"}))
    await run(router, request(max_tokens=5))
    await run(router, request(sampling=Sampling(temperature=1.0)))
    first, second = provider_of(target).requests
    assert (first.max_tokens, first.sampling.temperature) == (5, 0.2)
    assert (second.max_tokens, second.sampling.temperature) == (64, 1.0)
    assert second.reasoning is not None
    assert second.reasoning.effort == "low"


async def test_an_alias_whose_providers_are_off_is_not_ready() -> None:
    with pytest.raises(NotReady):
        await run(router_for())


async def test_a_slow_reader_is_told_that_the_deadline_passed_and_is_not_interrupted() -> None:
    target = scripted("a", [[text("one")], [text("two")], [FINISH]])
    router = router_for(target, rules=RoutingRules(total_s=0.3))
    read: list[Batch] = []

    async def read_slowly() -> None:
        async with aclosing(router.stream(request(), Progress(), same)) as batches:
            async for batch in batches:
                await until(lambda: router._deadlines.count == 0, within_s=5)
                read.append(batch)

    with pytest.raises(UpstreamTimeout):
        await read_slowly()
    assert read == [[text("one")]]


async def test_a_target_that_turns_out_to_lack_what_is_asked_is_passed_over() -> None:
    lacking = scripted("picky", [UnsupportedParameter("messages: no images by address", param="messages")])
    progress = Progress()
    assert await run(router_for(lacking, scripted("able", GOOD)), progress=progress) == "good"
    assert [target.label for target, _ in progress.passed_over] == ["picky/m"]
    alone = scripted("picky", [UnsupportedParameter("messages: no images by address", param="messages")])
    with pytest.raises(UnsupportedParameter, match="by address"):
        await run(router_for(alone))
