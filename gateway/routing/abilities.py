"""What can be asked of a model beside an answer: embeddings, ranks, scores, tokens.

Each function asks the targets of the name that stands in the request, with the tries, failover, deadline and errors of
generation, and writes into `progress` what became of it. What a target cannot express is refused by name, or dropped
and listed, as for generation. Any front may call them.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult, prompts_of
from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.request import Request
from adapters.canonical.rerank import RerankRequest, RerankResult, ScoreRequest, ScoreResult
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from adapters.canonical.usage import Usage
from adapters.field_names import FIELD_NAMES
from adapters.hints import HINTS, is_hint
from adapters.nearest_name import did_you_mean
from adapters.openai.embeddings.front import INPUT_TYPE
from gateway.routing.fitting import Spelling
from gateway.routing.requirements import fit
from gateway.routing.route import Target
from gateway.routing.router import Progress, Router
from providers.abilities import (
    Compacted,
    Compactor,
    Embedder,
    ModelHost,
    ModelLoad,
    Reranker,
    TokenCounter,
    Tokenizer,
    extras_of,
    lacks,
)
from providers.base import Capabilities

__all__ = ["compact", "count_tokens", "detokenize", "embed", "preload", "rerank", "score", "tokenize"]

_EMBEDDING_FIELDS = ("dimensions", "purpose", "titles", "truncate_prompt_tokens", "user", "keep_alive_s")
_RERANK_FIELDS = ("top_n", "truncate_prompt_tokens", "user")

_PLAIN_PROMPTS = Capabilities(
    fields=frozenset(("template.add_special_tokens",)), parts=frozenset(), messages=False, prompts=True
)
"""Of models that embed or rank, as far as their tokens are asked for."""

R = TypeVar("R", EmbeddingRequest, RerankRequest)


def _as_it_is(name: str) -> str:
    return name


async def embed(
    router: Router, request: EmbeddingRequest, progress: Progress, *, spell: Spelling = _as_it_is
) -> EmbeddingResult:
    """A vector for each input; without any, the model is asked to be there."""
    if not request.inputs:
        await preload(router, request.model, request.keep_alive_s)
        return EmbeddingResult(vectors=())

    async def call(target: Target) -> EmbeddingResult:
        provider = target.provider
        if not isinstance(provider, Embedder):
            raise lacks(request.model, "gives no embeddings")
        fields = provider.embedding_fields(target.model)
        if extras_of(request.dialect) not in fields:
            prompts_of(request)
        result = await provider.embed(_fitted(request, fields, _EMBEDDING_FIELDS, target, progress, spell=spell))
        progress.counted, progress.upstream_request_id = result.usage, result.request_id
        return result

    return await router.ask(request.model, progress, call)


async def preload(router: Router, model: str, keep_alive_s: float | None) -> None:
    """Has the model of the first target loaded, or with 0 those of all targets leave memory, as far as they are of this
    machine. Raises ModelNotFound and NotReady."""
    targets = (await router.names.resolve(model)).targets
    for target in targets if keep_alive_s == 0 else targets[:1]:
        host = target.provider
        if not isinstance(host, ModelHost):
            continue
        if keep_alive_s == 0:
            await host.unload_model(target.model)
        else:
            await host.load_model(ModelLoad(target.model, keep_alive_s))


async def compact(router: Router, request: Request, progress: Progress, spell: Spelling) -> Compacted:
    """A long input made short by the upstream itself. Raises UnsupportedParameter where no target of the model can."""

    async def call(target: Target) -> Compacted:
        provider = target.provider
        if not isinstance(provider, Compactor):
            raise lacks(request.model, "has no compaction of its own")
        capabilities = provider.capabilities(target.model)
        fitted = fit(request, capabilities, spell, drop=target.drops_unsupported, completions_as_chat=False)
        progress.dropped = fitted.dropped
        found = await provider.compact(replace(fitted.request, model=target.model))
        progress.counted = found.usage
        return found

    return await router.ask(request.model, progress, call)


async def rerank(router: Router, request: RerankRequest, progress: Progress) -> RerankResult:
    """The documents that answer the query best, the best one first."""

    async def call(target: Target) -> RerankResult:
        result = await _rerank(request, target, progress)
        progress.counted, progress.upstream_request_id = result.usage, result.request_id
        return result

    return await router.ask(request.model, progress, call)


async def score(router: Router, request: ScoreRequest, progress: Progress) -> ScoreResult:
    """A score for each pair: those of one query are ranked in one call."""
    places: dict[str, list[int]] = {}
    for place, query in enumerate(request.queries):
        places.setdefault(query, []).append(place)

    async def call(target: Target) -> ScoreResult:
        scores = [0.0] * len(request.queries)
        tokens: int | None = None
        for query, asked in places.items():
            documents = tuple([request.documents[place] for place in asked])
            one = RerankRequest(
                model=request.model,
                dialect=request.dialect,
                query=query,
                documents=documents,
                truncate_prompt_tokens=request.truncate_prompt_tokens,
                user=request.user,
                request_id=request.request_id,
                extras=request.extras,
            )
            found = await _rerank(one, target, progress)
            for each in found.scores:
                scores[asked[each.index]] = each.score
            if found.usage is not None and found.usage.prompt_tokens is not None:
                tokens = (tokens or 0) + found.usage.prompt_tokens
        progress.counted = None if tokens is None else Usage(prompt_tokens=tokens)
        return ScoreResult(scores=tuple(scores), usage=progress.counted)

    return await router.ask(request.model, progress, call)


async def tokenize(router: Router, request: TokenizeRequest, progress: Progress, *, spell: Spelling) -> Tokens:
    """The tokens of a prompt."""

    async def call(target: Target) -> Tokens:
        provider = target.provider
        if not isinstance(provider, Tokenizer):
            raise lacks(request.model, "cannot be asked for its tokens")
        capabilities = provider.capabilities(target.model)
        if not (capabilities.messages or capabilities.prompts):  # it generates nothing, and has tokens all the same
            capabilities = _PLAIN_PROMPTS
        fitted = fit(request.request, capabilities, spell, drop=target.drops_unsupported, completions_as_chat=False)
        progress.dropped = fitted.dropped
        return await provider.tokenize(replace(request, request=replace(fitted.request, model=target.model)))

    return await router.ask(request.model, progress, call)


async def count_tokens(router: Router, request: Request, progress: Progress, spell: Spelling) -> int:
    """How many tokens the prompt has for the model that would answer it, templates and tools included.

    Raises UnsupportedParameter where no target of the model can count.
    """
    route = await router.names.resolve(request.model)
    asked = request if route.defaults is None else route.defaults.apply(request)

    async def call(target: Target) -> Sequence[int]:
        provider = target.provider
        if not isinstance(provider, TokenCounter):
            raise UnsupportedParameter.at("model", f"no provider of the model '{request.model}' can count tokens")
        capabilities = provider.capabilities(target.model)
        fitted = fit(asked, capabilities, spell, drop=target.drops_unsupported, completions_as_chat=False)
        progress.dropped = fitted.dropped
        return await provider.count_tokens(replace(fitted.request, model=target.model))

    return sum(await router.ask(request.model, progress, call))


async def detokenize(router: Router, request: DetokenizeRequest, progress: Progress) -> str:
    """The text of tokens."""

    async def call(target: Target) -> str:
        if not isinstance(target.provider, Tokenizer):
            raise lacks(request.model, "cannot be asked for its tokens")
        return await target.provider.detokenize(replace(request, model=target.model))

    return await router.ask(request.model, progress, call)


async def _rerank(request: RerankRequest, target: Target, progress: Progress) -> RerankResult:
    provider = target.provider
    if not isinstance(provider, Reranker):
        raise lacks(request.model, "does not rank")
    fields = provider.rerank_fields(target.model)
    return await provider.rerank(_fitted(request, fields, _RERANK_FIELDS, target, progress))


def _had_to_be_said(request: EmbeddingRequest | RerankRequest, name: str) -> bool:
    return name == "purpose" and isinstance(request, EmbeddingRequest) and request.purpose_is_required


def _fitted(
    request: R,
    taken: frozenset[str],
    fields: tuple[str, ...],
    target: Target,
    progress: Progress,
    *,
    spell: Spelling = _as_it_is,
) -> R:
    """The request as the target gets it: in its names, without what it cannot express."""
    takes_extras = extras_of(request.dialect) in taken
    said: list[str] = [name for name in fields if getattr(request, name) is not None]
    absent: list[str] = [name for name in said if name not in taken]
    unmapped: Mapping[str, bytes] = {} if takes_extras else request.extras
    if "purpose" in said and INPUT_TYPE in request.extras:  # which say the same: one of them goes out
        absent = [name for name in absent if name != "purpose"]
        unmapped = {name: raw for name, raw in unmapped.items() if name != INPUT_TYPE or "purpose" not in taken}
    hints: list[str] = [spell(name) for name in absent if name in HINTS or _had_to_be_said(request, name)]
    hints += [name for name, raw in unmapped.items() if is_hint(request.dialect, name, raw)]
    dropped: list[str] = [name for name in (*map(spell, absent), *unmapped) if name not in hints]
    if dropped and not target.drops_unsupported:
        param = dropped[0]
        known = FIELD_NAMES.get(request.dialect, ())
        meant = did_you_mean(param, known) if param in unmapped and param not in known else ""
        raise UnsupportedParameter.at(param, f"the model '{request.model}' does not take it{meant}")
    progress.dropped = (*dropped, *hints)
    changed: dict[str, None] = dict.fromkeys(absent)
    extras = request.extras if takes_extras else {}
    return replace(request, model=target.model, extras=extras, **changed)
