"""The provider for every OpenAI-shaped server: chat completions, legacy completions and other abilities over HTTP.

Joins a vendor's row, the dialect and HTTP. Owns no wire words, no sockets and no retries.
"""

from collections.abc import AsyncGenerator, Sequence

import msgspec
from msgspec.structs import replace

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.messages import Document, File
from adapters.canonical.request import Request
from adapters.canonical.rerank import RerankRequest, RerankResult
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.completions.fim import FimUpstream
from adapters.openai.completions.upstream import CompletionsUpstream
from adapters.openai.quirks import Quirks
from adapters.openai.vocabulary import CHAT
from adapters.upstream import Upstream
from providers.abilities import ForwardAnswer, ForwardCall
from providers.base import Batch, Capabilities, ModelEntry, ProviderSettings
from providers.choices import fan_out
from providers.client_key import KeyHeader
from providers.models.narrowing import per_model
from providers.remote.account import ProbedAccount
from providers.remote.default_fields import default_fields
from providers.remote.end_marks import without_end_marks
from providers.remote.endpoint import PLAIN, Endpoint
from providers.remote.exchange import exchange
from providers.remote.fetched_media import FetchedMedia
from providers.remote.http import HttpClient
from providers.remote.marked_answers import marked_answers
from providers.remote.openai_abilities import OpenAIAbilities
from providers.remote.openai_models import fetch_openai_models
from providers.remote.vendors import VENDORS, Vendor

__all__ = ["OpenAICompatible", "build"]

_NO_DEFAULTS = frozenset(("model", "messages", "prompt", "stream", "n"))
_LIMITS = ("max_tokens", "max_completion_tokens")


class OpenAICompatible(ProbedAccount):
    """One configured OpenAI-shaped server; satisfies `providers.base.Provider`."""

    def __init__(self, settings: ProviderSettings, vendor: Vendor, endpoint: Endpoint = PLAIN) -> None:
        """Opens no connection. Raises ValueError on settings that can't work."""
        base_url = settings.base_url or vendor.base_url
        if base_url is None:
            raise ValueError(f"providers.{settings.name}.base_url: required for the type {vendor.name}")
        quirks = _with_defaults(vendor.quirks, settings)
        self._vendor = vendor
        self._endpoint = endpoint
        client = HttpClient(
            settings,
            base_url,
            KeyHeader(vendor.key_header, vendor.key_prefix) if endpoint.sign is None else None,
            sign=endpoint.sign,
            request_id_header=vendor.request_id_header,
        )
        super().__init__(settings.name, client, self._fetch_models)
        self._chat: Upstream = ChatUpstream(quirks)
        self._completions: Upstream = FimUpstream(quirks) if vendor.fim else CompletionsUpstream(quirks)
        self._capabilities = per_model(
            Capabilities(
                fields=vendor.fields,
                forwards=vendor.forwards,
                parts=vendor.parts,
                tool_kinds=vendor.tool_kinds,
                messages="messages" in vendor.fields,
                prompts="prompts" in vendor.fields,
                native_choices=vendor.native_choices,
            )
        )
        self._abilities = OpenAIAbilities(self._client, vendor, endpoint, self._chat, self._completions)
        self._media = FetchedMedia(settings.fetcher, (File, Document), own_dialect=CHAT)
        self._marked = marked_answers(settings, tools_unread=vendor.tools_unread)

    def capabilities(self, model: str) -> Capabilities:
        return self._capabilities(model)

    async def _fetch_models(self) -> Sequence[ModelEntry]:
        """GET /models."""
        return await fetch_openai_models(self._client, self._chat, self._endpoint.list_path)

    def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        return self._media.stream(self._answers, request)

    def _answers(self, request: Request) -> AsyncGenerator[Batch, None]:
        if request.num_choices > 1 and not self._vendor.native_choices:
            return fan_out(self._call, request)
        return self._call(request)

    def _call(self, request: Request) -> AsyncGenerator[Batch, None]:
        if self._marked is None:
            return self._exchange(request)
        return self._marked.read(self._exchange(self._marked.asked(request, self._vendor.fields)), request)

    def _exchange(self, request: Request) -> AsyncGenerator[Batch, None]:
        upstream = self._chat if request.prompts is None else self._completions
        endpoint = self._endpoint
        path = endpoint.path(upstream.path, request.model)
        called = endpoint.upstream_model(request.model)
        if called != request.model:
            request = replace(request, model=called)
        batches = exchange(self._client, upstream, request, path=path)
        marks = self._vendor.quirks.end_marks
        return without_end_marks(batches, marks) if marks else batches

    def embedding_fields(self, model: str) -> frozenset[str]:
        return self._vendor.embedding_fields

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        return await self._abilities.embed(request)

    def rerank_fields(self, model: str) -> frozenset[str]:
        return self._vendor.rerank_fields

    async def rerank(self, request: RerankRequest) -> RerankResult:
        return await self._abilities.rerank(request)

    async def count_tokens(self, request: Request) -> Sequence[int]:
        return await self._abilities.count_tokens(request)

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        return await self._abilities.tokenize(request)

    async def detokenize(self, request: DetokenizeRequest) -> str:
        return await self._abilities.detokenize(request)

    def forwards(self, path: str) -> bool:
        return self._abilities.forwards(path)

    async def forward(self, call: ForwardCall) -> ForwardAnswer:
        return await self._abilities.forward(call)


def build(settings: ProviderSettings) -> OpenAICompatible:
    """The provider for a type that is a vendor's name."""
    return OpenAICompatible(settings, VENDORS[settings.type])


def _with_defaults(quirks: Quirks, settings: ProviderSettings) -> Quirks:
    """The vendor's quirks with the provider's own default fields (`params:`) in them."""
    own = default_fields(settings, _NO_DEFAULTS, dict.fromkeys(_LIMITS, quirks.limit_field))
    return msgspec.structs.replace(quirks, defaults={**quirks.defaults, **own})
