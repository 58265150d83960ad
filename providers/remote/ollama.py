"""The provider for Ollama's native API over HTTP.

Joins the dialect and HTTP. Owns the address and what it declares; no wire words, no retries.
"""

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.messages import Document, Image, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from adapters.canonical.request import Request
from adapters.ollama.embeddings import EMBED_PATH, parse_embeddings, render_embeddings
from adapters.ollama.upstream import OllamaUpstream
from adapters.ollama.vocabulary import CHAT, GENERATE
from providers.abilities import OLLAMA_EXTRAS
from providers.base import Batch, Capabilities, ModelEntry, ProviderSettings
from providers.choices import fan_out
from providers.client_key import BEARER
from providers.remote import addresses
from providers.remote.account import ProbedAccount
from providers.remote.default_fields import default_fields
from providers.remote.exchange import exchange
from providers.remote.fetched_media import FetchedMedia
from providers.remote.http import HttpClient
from providers.remote.question import fetch_list, post_question

__all__ = ["OllamaProvider"]

_LINES = {"accept": "application/x-ndjson"}
_NO_DEFAULTS = frozenset(("model", "messages", "prompt", "tools", "stream"))
_FIELDS = frozenset(
    (
        "messages", "prompts", "suffix", "max_tokens", "temperature", "top_p", "top_k", "min_p", "typical_p",
        "repetition_penalty", "presence_penalty", "frequency_penalty", "repeat_last_n", "seed", "stop", "n",
        "logprobs", "tools", "tool_choice", "output_format", "reasoning.effort", "reasoning.mode", "keep_alive_s",
    )
)  # fmt: skip
_PARTS: frozenset[type[Part]] = frozenset((Text, Refusal, Reasoning, ToolCall, ToolResult, Image, Document))
_CAPABILITIES = Capabilities(
    fields=_FIELDS, forwards=frozenset((CHAT, GENERATE)), parts=_PARTS, prompts=True, strict_tools=False
)
_EMBEDDING_FIELDS = frozenset(("dimensions", "truncate_prompt_tokens", "keep_alive_s", OLLAMA_EXTRAS))


class _ModelRow(Struct):
    name: str


class _ModelList(Struct):
    models: list[_ModelRow] = []


_decode_models = Decoder(_ModelList).decode


class OllamaProvider(ProbedAccount):
    """One Ollama server; satisfies `providers.base.Provider` and `providers.abilities.Embedder`."""

    def __init__(self, settings: ProviderSettings) -> None:
        """Opens no connection. Raises ValueError on settings that can't work."""
        client = HttpClient(settings, settings.base_url or addresses.OLLAMA, BEARER)
        super().__init__(settings.name, client, self._fetch_models)
        self._upstream = OllamaUpstream(settings.name, defaults=default_fields(settings, _NO_DEFAULTS))
        self._media = FetchedMedia(settings.fetcher, (Image,))

    def capabilities(self, model: str) -> Capabilities:
        return _CAPABILITIES

    async def _fetch_models(self) -> Sequence[ModelEntry]:
        """GET /api/tags."""
        found = await fetch_list(self._client, self._upstream, "/api/tags", _decode_models)
        return tuple([ModelEntry(id=row.name, owned_by="ollama") for row in found.models])

    def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        return self._media.stream(self._answers, request)

    def _answers(self, request: Request) -> AsyncGenerator[Batch, None]:
        return fan_out(self._call, request)

    def _call(self, request: Request) -> AsyncGenerator[Batch, None]:
        upstream = self._upstream
        headers = _LINES if request.stream else None
        return exchange(self._client, upstream, request, path=upstream.path_of(request), headers=headers)

    def embedding_fields(self, model: str) -> frozenset[str]:
        """See `providers.abilities.Embedder.embedding_fields`."""
        return _EMBEDDING_FIELDS

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """POST /api/embed."""
        body = render_embeddings(request)
        reply = await post_question(self._client, self._upstream, EMBED_PATH, body, request_id=request.request_id)
        return parse_embeddings(request, reply.body)
