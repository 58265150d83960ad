"""What run.yaml says of routes, as requests over HTTP meet it."""

import pytest

from adapters.canonical.errors import ContentRefused, ContextOverflow, UpstreamInternal, UpstreamOverloaded
from gateway.config import parse_config
from gateway.routing.health import Health
from gateway.routing.names import ModelLists
from gateway.routing.strategies import Latency, LeastBusy, Sticky, Weighted
from gateway.server.route_table import build_names, routing_rules
from providers.base import Capabilities
from providers.testing.scripted import Script, ScriptedProvider
from tests.gateway.routing.walks import good
from tests.gateway.server.running import Running, chat, configure, running, until


def provider(name: str, *scripts: Script) -> ScriptedProvider:
    return ScriptedProvider(name, *(scripts or (good(name),)))


def alias(fields: str, more: str = "") -> str:
    return f"models: {{smart: {{{fields}}}}}\n{more}"


async def ask(gateway: Running, **headers: str) -> tuple[int, str]:
    """The status, and who answered (an alias's targets say their names)."""
    async with gateway.post(chat("smart"), headers=headers) as answer:
        body = await answer.json()
        return answer.status, body["choices"][0]["message"]["content"] if answer.status == 200 else ""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ordered", type(None)),
        ("weighted", Weighted),
        ("least_busy", LeastBusy),
        ("latency", Latency),
        ("sticky", Sticky),
    ],
)
def test_a_strategy_is_built_by_its_name(name: str, kind: type) -> None:
    text = "{use: a/m, weight: 3, tags: [eu]}, b/m"
    config = configure(
        alias(
            f"targets: [{text}], strategy: {name}, on_failure: [c/m], on_context_overflow: [c/long],"
            " on_content_filter: [c/free], shadow: {use: b/s, percent: 5}, hedge_s: 1.5"
        ),
        names=("a", "b", "c"),
    )
    providers = {each: provider(each) for each in "abc"}
    rules = routing_rules(config)
    health = Health(rules.breaker, lambda: 0.0)
    lists = ModelLists(providers, lambda: 0.0)
    names = build_names(config, providers, lists, health, clock=lambda: 0.0, random=lambda: 0.5)
    route = names.aliases["smart"]
    assert isinstance(route.strategy, kind)
    assert [(each.label, each.weight, each.tags) for each in route.targets] == [
        ("a/m", 3, frozenset({"eu"})),
        ("b/m", 1, frozenset()),
    ]
    assert [each.label for each in route.answering] == ["a/m", "b/m", "c/m"]
    assert route.detours is not None
    assert [route.detours[kind][0].label for kind in (ContextOverflow, ContentRefused)] == ["c/long", "c/free"]
    assert route.shadow is not None
    assert (route.shadow.target.label, route.shadow.share, route.hedge_s) == ("b/s", 0.05, 1.5)


async def test_answers_of_a_name_are_bounded_whatever_its_clients_ask_for() -> None:
    target = provider("a")
    rules = alias("targets: [a/m], max_tokens: 100, defaults: {max_tokens: 50}")
    async with running(target, extra=rules) as gateway:
        for limit in (32_000, 20, None):
            async with gateway.post(chat("smart", max_tokens=limit)) as answer:
                assert answer.status == 200
    assert [request.max_tokens for request in target.requests] == [100, 20, 50]


def test_the_breakers_rules_come_from_reliability() -> None:
    breaker = routing_rules(configure("reliability: {breaker: {failures: 2, window_s: 3, open_s: 4}}\n")).breaker
    assert (breaker.failures, breaker.window_s, breaker.open_s) == (2, 3, 4)


def test_targets_whose_providers_are_off_are_left_out_and_fallbacks_take_their_place() -> None:
    text = (
        "version: 1\nproviders:\n  a: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1', enabled: false}\n"
        "  b: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}\n"
        "models: {smart: {targets: [a/m], on_failure: [b/m], strategy: sticky}}\n"
    )
    config = parse_config(text, {}, provider_types=["openai-compatible"])
    providers = {"b": provider("b")}
    health, lists = Health(routing_rules(config).breaker, lambda: 0.0), ModelLists(providers, lambda: 0.0)
    route = build_names(config, providers, lists, health, clock=lambda: 0.0, random=lambda: 0.5).aliases["smart"]
    assert [each.label for each in route.targets] == ["b/m"]
    assert (route.strategy, route.on_failure) == (None, ())


async def test_the_log_tells_of_attempts_that_no_client_sees_and_of_targets_that_were_passed_over() -> None:
    first = provider("a", [UpstreamInternal("x", upstream_status=500)])
    lacking = ScriptedProvider("b", good("b"), capabilities=Capabilities(fields=frozenset()))
    config = alias("targets: [a/m, b/m, c/m]", "reliability: {retry: {attempts: 1}}\n")
    async with running(first, lacking, provider("c"), extra=config) as gateway:
        async with gateway.post(chat("smart", temperature=0.5)) as answer:
            assert answer.headers["x-gateway-provider"] == "c"
        attempt, line = gateway.lines()
    assert (attempt["event"], attempt["provider"], attempt["kind"], attempt["outcome"]) == (
        "attempt",
        "a",
        "first",
        "failed",
    )
    assert attempt["request_id"] == line["request_id"]
    assert line["passed_over"] == ["b/m: temperature: not supported by the model 'smart'"]


async def test_a_request_goes_only_to_targets_with_the_tags_of_its_header() -> None:
    config = alias("targets: [a/m, {use: b/m, tags: [eu, cheap]}]")
    async with running(provider("a"), provider("b"), extra=config) as gateway:
        assert await ask(gateway) == (200, "a")
        assert await ask(gateway, **{"X-Gateway-Tags": "eu"}) == (200, "b")
        assert (await ask(gateway, **{"X-Gateway-Tags": "us"}))[0] == 400
        async with gateway.post(chat("smart", metadata={"tags": "cheap"})) as answer:
            assert answer.headers["x-gateway-provider"] == "b"


async def test_a_request_goes_only_to_targets_whose_conditions_hold_and_the_log_tells_of_the_others() -> None:
    config = alias("targets: [{use: a/m, when: {header: {X-Team: lab-*}, metadata: {tier: [gold, silver]}}}, b/m]")
    async with running(provider("a"), provider("b"), extra=config) as gateway:
        asked = chat("smart", metadata={"tier": "silver"})
        async with gateway.post(asked, headers={"x-team": "lab-3"}) as answer:
            assert answer.headers["x-gateway-provider"] == "a"
        async with gateway.post(asked) as answer:
            assert answer.headers["x-gateway-provider"] == "b"
        assert gateway.lines()[-1]["passed_over"] == ["a/m: its condition on the header x-team does not hold"]


async def test_a_session_header_steers_the_sticky_strategy() -> None:
    providers = [provider(each) for each in "abcdef"]
    config = alias("targets: [a/m, b/m, c/m, d/m, e/m, f/m], strategy: sticky")
    async with running(*providers, extra=config) as gateway:
        seen = {number: await ask(gateway, **{"x-gateway-session": f"s{number}"}) for number in range(12)}
        for number, answer in seen.items():
            assert await ask(gateway, **{"x-gateway-session": f"s{number}"}) == answer
    assert len(set(seen.values())) > 1


@pytest.mark.parametrize(
    ("error", "key"),
    [(ContextOverflow("too long"), "on_context_overflow"), (ContentRefused("no"), "on_content_filter")],
    ids=["overflow", "filter"],
)
async def test_a_prompt_that_is_refused_goes_where_its_key_says(error: Exception, key: str) -> None:
    async with running(provider("a", [error]), provider("b"), extra=alias(f"targets: [a/m], {key}: [b/m]")) as gateway:
        assert await ask(gateway) == (200, "b")


async def test_a_breaker_of_one_name_steers_requests_for_another() -> None:
    first = provider("a", [UpstreamOverloaded("x", upstream_status=503)])
    config = (
        "models: {one: {targets: [a/m, b/m]}, smart: {targets: [a/m, c/m]}}\n"
        "reliability: {retry: {attempts: 1}, breaker: {failures: 2}}\n"
    )
    async with running(first, provider("b"), provider("c"), extra=config) as gateway:
        for _ in range(2):
            async with gateway.post(chat("one")) as answer:
                assert answer.status == 200
        assert await ask(gateway) == (200, "c")
    assert len(first.requests) == 2


async def test_a_shadow_gets_a_copy_and_the_client_nothing_of_it() -> None:
    shadow = provider("s", [UpstreamInternal("x")])
    config = alias("targets: [a/m], shadow: {use: s/m, percent: 100}")
    async with running(provider("a"), shadow, extra=config) as gateway:
        assert await ask(gateway) == (200, "a")
        await until(lambda: len(shadow.requests) == 1)
        await until(lambda: any(line["event"] == "attempt" for line in gateway.lines()))
        (attempt,) = [line for line in gateway.lines() if line["event"] == "attempt"]
    assert (attempt["kind"], attempt["provider"], attempt["outcome"]) == ("shadow", "s", "failed")
