"""The paths of everything that can be asked in OpenAI's words, and in those of its relatives, beside generation."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.cohere.embeddings_front import CohereEmbedFront
from adapters.front import Front
from adapters.openai.embeddings.front import EmbeddingsFront
from adapters.openai.rerank.front import CohereRerankFront, RerankFront, ScoreFront
from adapters.openai.tokens.front import ChatTokenCountFront, DetokenizeFront, TokenizeFront
from gateway.routing import abilities
from gateway.routing.router import Router
from gateway.server.ability import Ability, AbilityFront
from gateway.server.body import BodyReader
from gateway.server.service import Served
from gateway.server.token_count import TokenCount

__all__ = ["EmbeddingFront", "ability_routes", "embedding"]


class EmbeddingFront(AbilityFront[EmbeddingRequest, EmbeddingResult], Protocol):
    """Embeddings in one dialect."""

    def client_field(self, name: str) -> str:
        """The client's spelling of a canonical field."""
        ...


def embedding(
    words: EmbeddingFront,
    router: Router,
    bodies: BodyReader,
    *,
    now: Callable[[], float],
    max_depth: int,
    front: Front | None = None,
) -> Served:
    """What answers with vectors. `front` is the dialect of errors, None is OpenAI's; `now` gives Unix seconds."""
    embed = partial(abilities.embed, router, spell=words.client_field)
    return Ability(words, embed, router, bodies, now=now, max_depth=max_depth, front=front)


def ability_routes(
    router: Router, bodies: BodyReader, *, now: Callable[[], float], max_depth: int
) -> Mapping[str, Served]:
    """What answers the POSTs of each path. `now` gives Unix seconds."""
    answers = partial(Ability, router=router, bodies=bodies, now=now, max_depth=max_depth)
    ranks = partial(abilities.rerank, router)
    rerank = answers(RerankFront(), ranks)
    score = answers(ScoreFront(), partial(abilities.score, router))
    counts = ChatTokenCountFront()
    return {
        "/v1/embeddings": embedding(EmbeddingsFront(), router, bodies, now=now, max_depth=max_depth),
        "/v1/rerank": rerank,
        "/rerank": rerank,
        "/v2/embed": embedding(CohereEmbedFront(), router, bodies, now=now, max_depth=max_depth),
        "/v2/rerank": answers(CohereRerankFront(), ranks),
        "/v1/score": score,
        "/score": score,
        "/tokenize": answers(TokenizeFront(), partial(abilities.tokenize, router, spell=counts.client_field)),
        "/detokenize": answers(DetokenizeFront(), partial(abilities.detokenize, router)),
        "/v1/chat/completions/input_tokens": TokenCount(counts, router, bodies, max_depth=max_depth),
    }
