"""The paths of everything that can be asked in OpenAI's words, and in those of its relatives, beside generation."""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.cohere.embeddings_front import CohereEmbedFront
from adapters.front import Front
from adapters.openai.embeddings.front import EmbeddingsFront
from adapters.openai.rerank.front import CohereRerankFront, RerankFront, ScoreFront
from adapters.openai.tokens.front import ChatTokenCountFront, DetokenizeFront, TokenizeFront
from gateway.routing import abilities
from gateway.server.ability import Ability, AbilityFront
from gateway.server.means import Means
from gateway.server.routes import Served
from gateway.server.token_count import TokenCount

__all__ = ["EmbeddingFront", "ability_routes", "embedding"]


class EmbeddingFront(AbilityFront[EmbeddingRequest, EmbeddingResult], Protocol):
    """Embeddings in one dialect."""

    def client_field(self, name: str) -> str:
        """The client's spelling of a canonical field."""
        ...


def embedding(words: EmbeddingFront, means: Means, front: Front | None = None) -> Served:
    """What answers with vectors. `front` is the dialect of errors, None is OpenAI's."""
    return Ability(words, partial(abilities.embed, means.router, spell=words.client_field), means, front)


def ability_routes(means: Means) -> Mapping[str, Served]:
    """What answers the POSTs of each path."""
    router = means.router
    ranks = partial(abilities.rerank, router)
    rerank = Ability(RerankFront(), ranks, means)
    score = Ability(ScoreFront(), partial(abilities.score, router), means)
    counts = ChatTokenCountFront()
    return {
        "/v1/embeddings": embedding(EmbeddingsFront(), means),
        "/v1/rerank": rerank,
        "/rerank": rerank,
        "/v2/embed": embedding(CohereEmbedFront(), means),
        "/v2/rerank": Ability(CohereRerankFront(), ranks, means),
        "/v1/score": score,
        "/score": score,
        "/tokenize": Ability(TokenizeFront(), partial(abilities.tokenize, router, spell=counts.client_field), means),
        "/detokenize": Ability(DetokenizeFront(), partial(abilities.detokenize, router), means),
        "/v1/chat/completions/input_tokens": TokenCount(counts, means),
    }
