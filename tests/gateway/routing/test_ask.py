"""Answers that are no streams: the same tries, failover and deadline, and targets that lack an ability."""

import asyncio

import pytest

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.errors import (
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    NotReady,
    UnsupportedParameter,
    UpstreamAuth,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
)
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Request, TemplateOptions
from adapters.canonical.rerank import RerankRequest, RerankResult, RerankScore, ScoreRequest
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from adapters.canonical.usage import Usage
from gateway.routing import abilities
from gateway.routing.names import ModelLists, Names, ProviderRules
from gateway.routing.route import Route, Target
from gateway.routing.router import Progress, Router, RoutingRules
from providers.abilities import EXTRAS
from providers.base import Capabilities
from providers.testing.scripted import ScriptedProvider

Outcome = str | Exception | asyncio.Event


def target(name: str, model: str = "m") -> Target:
    return Target(ScriptedProvider(name), model)


def router_for(*targets: Target, rules: RoutingRules | None = None) -> Router:
    providers = {each.provider.name: ProviderRules(each.provider) for each in targets}
    lists = ModelLists({name: each.provider for name, each in providers.items()}, lambda: 0.0)
    return Router(
        Names(providers, {"alias": Route(targets), "off": Route(())}, lists), rules or RoutingRules(), lambda: 1.0
    )


class Calls:
    """Gives each target's outcomes in turn; the last one repeats. `asked` are the targets that were asked."""

    def __init__(self, **outcomes: list[Outcome]) -> None:
        self._outcomes = outcomes
        self.asked: list[str] = []

    async def __call__(self, asked: Target) -> str:
        name = asked.provider.name
        outcomes = self._outcomes[name]
        outcome = outcomes[min(self.asked.count(name), len(outcomes) - 1)]
        self.asked.append(name)
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, asyncio.Event):
            await outcome.wait()
            return "late"
        return outcome


async def test_a_failure_that_may_pass_is_tried_again_and_then_the_next_target() -> None:
    calls = Calls(a=[UpstreamOverloaded("busy")], b=["good"])
    progress = Progress()
    assert await router_for(target("a"), target("b", "n")).ask("alias", progress, calls) == "good"
    assert calls.asked == ["a", "a", "b"]
    assert progress.target is not None
    assert (progress.target.label, progress.attempts, len(progress.failures)) == ("b/n", 3, 1)


async def test_a_target_that_asks_for_a_pause_gets_it_while_another_answers() -> None:
    calls = Calls(a=[UpstreamRateLimited("slow", retry_after_s=5)], b=["good"])
    assert await router_for(target("a"), target("b")).ask("alias", Progress(), calls) == "good"
    assert calls.asked == ["a", "b"]


async def test_what_no_target_would_mend_ends_it() -> None:
    calls = Calls(a=[InvalidRequest("no")], b=["good"])
    with pytest.raises(InvalidRequest, match="no"):
        await router_for(target("a"), target("b")).ask("alias", Progress(), calls)
    assert calls.asked == ["a"]


async def test_a_target_without_the_ability_is_passed_over_and_told_only_if_nobody_has_it() -> None:
    lacking = UnsupportedParameter("model: no such thing", param="model")
    calls = Calls(a=[lacking], b=["good"])
    assert await router_for(target("a"), target("b")).ask("alias", Progress(), calls) == "good"
    with pytest.raises(UnsupportedParameter, match="no such thing"):
        await router_for(target("a"), target("b")).ask("alias", Progress(), Calls(a=[lacking], b=[lacking]))
    with pytest.raises(UpstreamAuth):
        await router_for(target("a"), target("b")).ask("alias", Progress(), Calls(a=[UpstreamAuth("x")], b=[lacking]))


async def test_a_request_that_can_not_be_sent_again_is_not() -> None:
    calls = Calls(a=[UpstreamOverloaded("busy")], b=["good"])
    with pytest.raises(UpstreamOverloaded):
        await router_for(target("a"), target("b")).ask("alias", Progress(), calls, may_repeat=lambda: False)
    assert calls.asked == ["a"]


async def test_the_deadline_ends_a_call_and_a_cancellation_stays_one() -> None:
    router = router_for(target("a"), rules=RoutingRules(total_s=0.05))
    with pytest.raises(UpstreamTimeout):
        await router.ask("alias", Progress(), Calls(a=[asyncio.Event()]))
    slow = router_for(target("a"))
    call = asyncio.create_task(slow.ask("alias", Progress(), Calls(a=[asyncio.Event()])))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert slow._deadlines.count == 0


@pytest.mark.parametrize(("name", "error"), [("a/m", None), ("nowhere", ModelNotFound), ("off", NotReady)])
async def test_names_are_those_of_generation(name: str, error: type[GatewayError] | None) -> None:
    router = router_for(target("a"))
    if error is None:
        assert await router.ask(name, Progress(), Calls(a=["good"])) == "good"
    else:
        with pytest.raises(error):
            await router.ask(name, Progress(), Calls(a=["good"]))


class Able(ScriptedProvider):
    """Embeds and ranks: vectors of the texts' lengths, scores of how much longer a document is than the query."""

    def __init__(self, name: str, fields: frozenset[str]) -> None:
        super().__init__(name)
        self._fields = fields
        self.asked: list[EmbeddingRequest | RerankRequest] = []

    def embedding_fields(self, model: str) -> frozenset[str]:
        return self._fields

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        self.asked.append(request)
        return EmbeddingResult(vectors=(b"1234",) * len(request.inputs), usage=Usage(prompt_tokens=3))

    def rerank_fields(self, model: str) -> frozenset[str]:
        return self._fields

    async def rerank(self, request: RerankRequest) -> RerankResult:
        self.asked.append(request)
        scores = [RerankScore(i, float(len(text) - len(request.query))) for i, text in enumerate(request.documents)]
        return RerankResult(scores=tuple(sorted(scores, key=lambda each: -each.score)), usage=Usage(prompt_tokens=2))


def embedding(**fields: object) -> EmbeddingRequest:
    return EmbeddingRequest(**{"model": "alias", "dialect": "d", "inputs": ("x",), **fields})  # type: ignore[arg-type]


async def test_embeddings_are_asked_under_the_targets_name_and_their_usage_is_noted() -> None:
    provider = Able("a", frozenset((EXTRAS, "dimensions")))
    progress = Progress()
    asked = embedding(dimensions=2, extras={"x": b"1"})
    result = await abilities.embed(router_for(Target(provider, "m")), asked, progress)
    assert result.vectors == (b"1234",)
    assert provider.asked == [embedding(model="m", dimensions=2, extras={"x": b"1"})]
    assert progress.usage == Usage(prompt_tokens=3)


async def test_what_a_target_lacks_is_refused_by_name_unless_it_is_to_be_dropped_and_listed() -> None:
    provider = Able("a", frozenset(("user",)))
    asked = embedding(dimensions=2, user="u", extras={"odd": b"1"})
    with pytest.raises(UnsupportedParameter, match="dimensions") as caught:
        await abilities.embed(router_for(Target(provider, "m")), asked, Progress())
    assert caught.value.param == "dimensions"
    progress = Progress()
    await abilities.embed(router_for(Target(provider, "m", drops_unsupported=True)), asked, progress)
    assert progress.dropped == ("dimensions", "odd")
    assert provider.asked == [embedding(model="m", user="u")]


async def test_pairs_are_scored_in_their_order_with_one_call_for_each_query() -> None:
    provider = Able("a", frozenset())
    request = ScoreRequest(model="alias", dialect="d", queries=("qq", "q", "qq"), documents=("aaa", "a", "a"))
    progress = Progress()
    result = await abilities.score(router_for(Target(provider, "m")), request, progress)
    assert result.scores == (1.0, 0.0, -1.0)
    assert len(provider.asked) == 2
    assert progress.usage == result.usage == Usage(prompt_tokens=4)


class Tokenizing(ScriptedProvider):
    """Of a model that embeds: it generates nothing, and has tokens."""

    def __init__(self) -> None:
        nothing = Capabilities(fields=frozenset(), parts=frozenset(), messages=False)
        super().__init__("a", capabilities=nothing)

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        return Tokens(ids=tuple(range(len(str(request.request.prompts)))))

    async def detokenize(self, request: DetokenizeRequest) -> str:
        return ""


async def test_a_model_that_generates_nothing_tells_the_tokens_of_a_plain_prompt() -> None:
    router = router_for(Target(Tokenizing(), "m"))
    bare = TemplateOptions(add_special_tokens=False)
    plain = TokenizeRequest(request=Request(model="alias", dialect="d", prompts=("x",), template=bare))
    assert (await abilities.tokenize(router, plain, Progress(), spell=str)).ids
    chat = (Message(role=USER, parts=(Text(text="x"),)),)
    with pytest.raises(UnsupportedParameter, match="takes plain prompts only"):
        await abilities.tokenize(
            router, TokenizeRequest(request=Request(model="alias", dialect="d", messages=chat)), Progress(), spell=str
        )


async def test_providers_without_the_abilities_are_told_apart_by_name() -> None:
    router = router_for(target("a"))
    with pytest.raises(UnsupportedParameter, match="the model 'alias' gives no embeddings"):
        await abilities.embed(router, embedding(), Progress())
    rank = RerankRequest(model="alias", dialect="d", query="q", documents=("a",))
    with pytest.raises(UnsupportedParameter, match="does not rank"):
        await abilities.rerank(router, rank, Progress())
    with pytest.raises(UnsupportedParameter, match="its tokens"):
        await abilities.detokenize(router, DetokenizeRequest(model="alias", ids=(1,)), Progress())


@pytest.mark.parametrize(("dialect", "refused"), [("openai.embeddings", False), ("ollama.embed", True)])
async def test_unmapped_fields_go_to_a_target_of_the_clients_own_dialect_alone(dialect: str, refused: bool) -> None:
    provider = Able("a", frozenset((EXTRAS,)))
    asked = embedding(dialect=dialect, extras={"odd": b"1"})
    if refused:
        with pytest.raises(UnsupportedParameter, match="odd"):
            await abilities.embed(router_for(Target(provider, "m")), asked, Progress())
    else:
        await abilities.embed(router_for(Target(provider, "m")), asked, Progress())
        assert provider.asked == [embedding(model="m", dialect=dialect, extras={"odd": b"1"})]
