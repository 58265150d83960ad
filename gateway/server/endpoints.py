"""Which dialect is served where: the fronts by path, and what each path is served by.

Paths of the stateful API, of administration and of what passes through unread stand elsewhere.
"""

from collections.abc import Mapping
from dataclasses import replace

from adapters.anthropic.front import MessagesFront
from adapters.front import Front
from adapters.gemini.embeddings.front import BatchEmbedFront, EmbedFront, PredictFront
from adapters.gemini.front import GenerateFront
from adapters.llamacpp.front import CompletionFront, InfillFront
from adapters.ollama.front import OllamaChatFront, OllamaGenerateFront
from adapters.openai.chat.front import ChatFront
from adapters.openai.completions.fim import FimFront
from adapters.openai.completions.front import CompletionsFront
from gateway.config import Config
from gateway.server.ability_routes import EmbeddingFront, ability_routes, embedding
from gateway.server.body import BodyReader
from gateway.server.catalogue import Catalogue
from gateway.server.generation import AnswerKeeper, Generation
from gateway.server.listing import ListingFront
from gateway.server.means import Means
from gateway.server.ollama_routes import OllamaPreloads, ollama_posts
from gateway.server.routes import Served
from gateway.server.token_count import CountingFront, TokenCount

__all__ = ["BY_HEADER", "BY_START", "CHAT", "LISTS", "OLLAMA", "endpoints"]

CHAT = "/v1/chat/completions"
_OLLAMA_CHAT, _OLLAMA_GENERATE = _PRELOADING = ("/api/chat", "/api/generate")
_MESSAGES = MessagesFront()
_GEMINI = GenerateFront()
_GEMINI_ARRAY, _GEMINI_SSE = GenerateFront(stream=True), GenerateFront(stream=True, sse=True)
OLLAMA = OllamaChatFront()
_GEMINI_MODELS = ("/v1beta/models", "/v1/models")
_FRONTS: Mapping[str, Front] = {
    CHAT: ChatFront(),
    "/v1/completions": CompletionsFront(),
    "/v1/fim/completions": FimFront(),
    "/v1/messages": _MESSAGES,
    "/completion": CompletionFront(),
    "/infill": InfillFront(),
    _OLLAMA_CHAT: OLLAMA,
    _OLLAMA_GENERATE: OllamaGenerateFront(),
    **{f"{models}/*:generateContent": _GEMINI for models in _GEMINI_MODELS},
    **{f"{models}/*:streamGenerateContent": _GEMINI_ARRAY for models in _GEMINI_MODELS},
    **{f"{models}/*:streamGenerateContent?alt=sse": _GEMINI_SSE for models in _GEMINI_MODELS},
}
_COUNTS: Mapping[str, CountingFront] = {
    "/v1/messages/count_tokens": _MESSAGES,
    **{f"{models}/*:countTokens": _GEMINI for models in _GEMINI_MODELS},
}
_EMBEDDINGS: Mapping[str, EmbeddingFront] = {
    **{f"{models}/*:embedContent": EmbedFront() for models in _GEMINI_MODELS},
    **{f"{models}/*:batchEmbedContents": BatchEmbedFront() for models in _GEMINI_MODELS},
    **{f"{models}/*:predict": PredictFront() for models in _GEMINI_MODELS},
}
LISTS: Mapping[str, ListingFront | None] = {"/v1/models": None, "/v1beta/models": _GEMINI}
BY_HEADER: Mapping[str, ListingFront] = {"anthropic-version": _MESSAGES, "x-goog-api-key": _GEMINI}
BY_START: Mapping[str, Front] = {"/v1beta/": _GEMINI, "/v1beta1/": _GEMINI, "/api/": OLLAMA}
_UNTYPED = "/api/"
"""Below this path bodies need not say that they are JSON: Ollama does not ask, and its examples with curl do not."""


def endpoints(
    config: Config, means: Means, untyped: BodyReader, *, catalogue: Catalogue, kept_chats: AnswerKeeper
) -> dict[str, Served]:
    """What serves each path. `untyped` reads bodies of whatever type; `kept_chats` answers chats that are kept."""
    any_type = replace(means, bodies=untyped)
    served: dict[str, Served] = {
        path: Generation(
            front,
            any_type if path.startswith(_UNTYPED) else means,
            keepalive_s=config.server.keepalive_s,
            keeper=kept_chats if path == CHAT else None,
            preloads=OllamaPreloads(means, chat=path == _OLLAMA_CHAT) if path in _PRELOADING else None,
        )
        for path, front in _FRONTS.items()
    }
    served |= {path: TokenCount(front, means) for path, front in _COUNTS.items()}
    served |= {path: embedding(words, means, _GEMINI) for path, words in _EMBEDDINGS.items()}
    return {**served, **ability_routes(means), **ollama_posts(OLLAMA, catalogue, any_type)}
