"""The provider for Google's Gemini API over HTTP: AI Studio with a key, or Vertex AI in a region of a project.

Joins the dialect and HTTP. Owns addresses and credentials; no wire words, no retries.
"""

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.abilities import EMBED, GENERATE
from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.errors import UpstreamError
from adapters.canonical.messages import (
    Audio,
    Document,
    File,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from adapters.canonical.request import Request
from adapters.canonical.tool_kinds import FUNCTION, HOSTED
from adapters.gemini.continuation import Continuation
from adapters.gemini.embeddings.upstream import (
    MAX_INPUTS,
    embedding_path,
    is_predicted,
    parse_embeddings,
    render_embeddings,
)
from adapters.gemini.media import is_file_uri
from adapters.gemini.upstream import GenerateUpstream
from adapters.gemini.vocabulary import GEMINI
from providers.abilities import GEMINI_EXTRAS
from providers.base import Batch, Capabilities, ModelEntry, ProviderSettings
from providers.choices import fan_out
from providers.client_key import KeyHeader
from providers.models.narrowing import per_model
from providers.models.schema_subsets import GEMINI as GEMINI_LACKS
from providers.remote import addresses
from providers.remote.account import ProbedAccount
from providers.remote.default_fields import default_fields
from providers.remote.embedding_batches import embed_in_batches
from providers.remote.exchange import exchange
from providers.remote.fetched_media import FetchedMedia
from providers.remote.google_token import google_token
from providers.remote.http import HttpClient
from providers.remote.paused_turns import continued
from providers.remote.question import fetch_list, post_question

__all__ = ["GeminiProvider", "vertex_url"]

_NO_DEFAULTS = frozenset(("model", "contents", "systemInstruction", "tools"))
_ABILITIES = {"generateContent": GENERATE, "embedContent": EMBED}
_PREFIX = "models/"
_FIELDS = frozenset(
    (
        "messages", "max_tokens", "temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty",
        "stop", "n", "logprobs", "tools", "tool_choice", "output_format", "modalities", "reasoning.effort",
        "reasoning.budget_tokens", "reasoning.mode", "reasoning.include", "service_tier", "store",
    )
)  # fmt: skip
_PARTS: frozenset[type[Part]] = frozenset(
    (Text, Refusal, Reasoning, ToolCall, ToolResult, Image, Audio, Video, File, Document, Opaque)
)
_CAPABILITIES = per_model(
    Capabilities(
        fields=_FIELDS,
        forwards=frozenset((GEMINI,)),
        parts=_PARTS,
        tool_kinds=frozenset((FUNCTION, HOSTED)),
        schema_lacks=GEMINI_LACKS,
    )
)


_EMBEDDING_FIELDS = frozenset(("dimensions", "purpose", "titles"))
_VERTEX_FIELDS = _EMBEDDING_FIELDS | {"truncate_prompt_tokens"}


class _ModelRow(Struct, rename="camel"):
    name: str
    input_token_limit: int | None = None
    supported_generation_methods: list[str] | None = None


class _ModelList(Struct):
    models: list[_ModelRow] = []


class _Count(Struct, rename="camel"):
    total_tokens: int


_decode_models = Decoder(_ModelList).decode
_decode_count = Decoder(_Count).decode


class GeminiProvider(ProbedAccount):
    """One configured account; satisfies `providers.base.Provider`, and TokenCounter and Embedder of `abilities`.

    With a `project` (and its `region`) it is Vertex AI, which takes a key, or without one a token of the surroundings.
    """

    def __init__(self, settings: ProviderSettings) -> None:
        """Opens no connection. Raises ValueError on settings that can't work, ImportError without google-auth."""
        self._is_vertex = "project" in settings.options or "region" in settings.options
        base_url = vertex_url(settings) if self._is_vertex else addresses.GEMINI
        token = google_token(settings.name) if self._is_vertex and not settings.api_key else None
        key_header, sign = (KeyHeader("x-goog-api-key"), None) if token is None else (None, token.sign)
        client = HttpClient(settings, settings.base_url or base_url, key_header, sign=sign)
        super().__init__(settings.name, client, self._fetch_models)
        self._upstream = GenerateUpstream(settings.name, defaults=default_fields(settings, _NO_DEFAULTS))
        self._media = FetchedMedia(settings.fetcher, (Image, File, Document), keeps=is_file_uri, own_dialect=GEMINI)

    def capabilities(self, model: str) -> Capabilities:
        return _CAPABILITIES(model)

    async def models(self) -> Sequence[ModelEntry]:
        """GET /models, kept for a minute. Raises UpstreamError for Vertex AI, which lists no models of a project."""
        if self._is_vertex:
            raise UpstreamError(f"{self.name}: Vertex AI has no list of what a project may call")
        return await self._models.get()

    async def _fetch_models(self) -> Sequence[ModelEntry]:
        found = await fetch_list(self._client, self._upstream, "/models?pageSize=1000", _decode_models)
        return tuple([_entry(row) for row in found.models if _is_called(row)])

    def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        return self._media.stream(self._answers, request)

    def _answers(self, request: Request) -> AsyncGenerator[Batch, None]:
        return fan_out(self._answer, request)

    def _answer(self, request: Request) -> AsyncGenerator[Batch, None]:
        """One choice."""
        return continued(self._call, request, Continuation)

    def _call(self, request: Request) -> AsyncGenerator[Batch, None]:
        return exchange(self._client, self._upstream, request, path=self._upstream.path_of(request))

    async def count_tokens(self, request: Request) -> Sequence[int]:
        """POST /models/{model}:countTokens."""
        upstream = self._upstream
        body = upstream.render_count(request, wrapped=not self._is_vertex)
        path = upstream.count_path_of(request)
        reply = await post_question(self._client, upstream, path, body, request_id=request.request_id)
        return (reply.read(_decode_count, self.name, "token count").total_tokens,)

    def embedding_fields(self, model: str) -> frozenset[str]:
        """See `providers.abilities.Embedder.embedding_fields`."""
        if not self._is_vertex:
            return _EMBEDDING_FIELDS | {GEMINI_EXTRAS}
        return _VERTEX_FIELDS if is_predicted(model) else _VERTEX_FIELDS | {GEMINI_EXTRAS}

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """POST /models/{model}:batchEmbedContents, or what Vertex AI has for this model."""
        return await embed_in_batches(self._embed, request, MAX_INPUTS)

    async def _embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        path = embedding_path(request, vertex=self._is_vertex)
        body = render_embeddings(request, vertex=self._is_vertex)
        reply = await post_question(self._client, self._upstream, path, body, request_id=request.request_id)
        return parse_embeddings(request, reply.body)


def vertex_url(settings: ProviderSettings) -> str:
    """Where Vertex AI answers for a project in a region. Raises ValueError without a project."""
    project, region = settings.options.get("project"), settings.options.get("region", "global")
    if not project:
        raise ValueError(f"providers.{settings.name}.project: required with a region")
    host = "aiplatform.googleapis.com" if region == "global" else f"{region}-aiplatform.googleapis.com"
    return f"https://{host}/v1/projects/{project}/locations/{region}/publishers/google"


def _is_called(row: _ModelRow) -> bool:
    methods = row.supported_generation_methods
    return methods is None or not _ABILITIES.keys().isdisjoint(methods)


def _entry(row: _ModelRow) -> ModelEntry:
    methods = row.supported_generation_methods
    return ModelEntry(
        id=row.name.removeprefix(_PREFIX),
        owned_by="google",
        context=row.input_token_limit,
        abilities=None if methods is None else frozenset([_ABILITIES[word] for word in methods if word in _ABILITIES]),
    )
