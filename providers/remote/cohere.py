"""The provider for Cohere's chat API over HTTP.

Joins the dialect and HTTP. Owns what Cohere can express; no wire words, no retries.
"""

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from adapters.canonical.abilities import EMBED, GENERATE, RANK
from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.messages import Document, Image, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from adapters.canonical.request import Request
from adapters.canonical.rerank import RerankRequest, RerankResult
from adapters.cohere.embeddings import EMBED_PATH, MAX_INPUTS, parse_embeddings, render_embeddings
from adapters.cohere.rerank import RERANK_PATH, parse_rerank, render_rerank
from adapters.cohere.upstream import CohereUpstream
from providers.abilities import COHERE_EXTRAS, EXTRAS
from providers.base import Batch, Capabilities, ModelEntry, ProviderSettings
from providers.choices import fan_out
from providers.client_key import BEARER
from providers.models.narrowing import per_model
from providers.models.schema_subsets import COHERE
from providers.remote import addresses
from providers.remote.account import ProbedAccount
from providers.remote.default_fields import default_fields
from providers.remote.embedding_batches import embed_in_batches
from providers.remote.exchange import exchange
from providers.remote.http import BESIDE_VERSION, HttpClient
from providers.remote.question import fetch_list, post_question

__all__ = ["CohereProvider"]

_MODELS = f"{BESIDE_VERSION}v1/models?page_size=1000"
_ABILITIES = {"chat": GENERATE, "embed": EMBED, "rerank": RANK}
"""By the endpoints that are called here."""
_EMBEDDING_FIELDS = frozenset(("dimensions", "purpose", "truncate_prompt_tokens", COHERE_EXTRAS))
_RERANK_FIELDS = frozenset(("top_n", EXTRAS))
_NO_DEFAULTS = frozenset(("model", "messages", "stream"))
_FIELDS = frozenset(
    (
        "messages", "max_tokens", "temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty",
        "stop", "n", "tools", "tool_choice", "output_format", "reasoning.effort", "reasoning.budget_tokens", "priority",
    )
)  # fmt: skip
_PARTS: frozenset[type[Part]] = frozenset((Text, Refusal, Reasoning, ToolCall, ToolResult, Image, Document))
_CAPABILITIES = per_model(
    Capabilities(
        fields=_FIELDS,
        parts=_PARTS,
        output_formats=frozenset(("text", "json_object", "json_schema")),
        schema_lacks=COHERE,
    )
)


class _ModelRow(Struct):
    name: str
    context_length: float | None = None
    endpoints: list[str] | None = None


class _ModelList(Struct):
    models: list[_ModelRow] = []


_decode_models = Decoder(_ModelList).decode


class CohereProvider(ProbedAccount):
    """One configured account; satisfies `providers.base.Provider`, and Embedder and Reranker of `abilities`."""

    def __init__(self, settings: ProviderSettings) -> None:
        """Opens no connection. Raises ValueError on settings that can't work."""
        client = HttpClient(settings, settings.base_url or addresses.COHERE, BEARER)
        super().__init__(settings.name, client, self._fetch_models)
        self._upstream = CohereUpstream(settings.name, defaults=default_fields(settings, _NO_DEFAULTS))

    def capabilities(self, model: str) -> Capabilities:
        return _CAPABILITIES(model)

    async def _fetch_models(self) -> Sequence[ModelEntry]:
        """GET /v1/models."""
        found = await fetch_list(self._client, self._upstream, _MODELS, _decode_models)
        return tuple(
            [
                _entry(row)
                for row in found.models
                if row.endpoints is None or not _ABILITIES.keys().isdisjoint(row.endpoints)
            ]
        )

    def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        return fan_out(self._call, request)

    def _call(self, request: Request) -> AsyncGenerator[Batch, None]:
        return exchange(self._client, self._upstream, request)

    def embedding_fields(self, model: str) -> frozenset[str]:
        """See `providers.abilities.Embedder.embedding_fields`."""
        return _EMBEDDING_FIELDS

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """POST /embed, for every 96 texts."""
        return await embed_in_batches(self._embed, request, MAX_INPUTS)

    async def _embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        body = render_embeddings(request)
        reply = await post_question(self._client, self._upstream, EMBED_PATH, body, request_id=request.request_id)
        return replace(parse_embeddings(request, reply.body), request_id=reply.request_id)

    def rerank_fields(self, model: str) -> frozenset[str]:
        """See `providers.abilities.Reranker.rerank_fields`."""
        return _RERANK_FIELDS

    async def rerank(self, request: RerankRequest) -> RerankResult:
        """POST /rerank."""
        body = render_rerank(request)
        reply = await post_question(self._client, self._upstream, RERANK_PATH, body, request_id=request.request_id)
        return replace(parse_rerank(request, reply.body), request_id=reply.request_id)


def _entry(row: _ModelRow) -> ModelEntry:
    context = None if row.context_length is None else int(row.context_length)
    abilities = frozenset([_ABILITIES[word] for word in row.endpoints or () if word in _ABILITIES]) or None
    return ModelEntry(id=row.name, owned_by="cohere", context=context, abilities=abilities)
