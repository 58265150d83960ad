"""The provider for Cohere's chat API over HTTP.

Joins the dialect and HTTP. Owns what Cohere can express; no wire words, no retries.
"""

from collections.abc import AsyncGenerator, Sequence

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.messages import Document, Image, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from adapters.canonical.request import Request
from adapters.cohere.upstream import CohereUpstream
from providers.base import Batch, Capabilities, ModelEntry, ProviderSettings, Readiness, ReadinessState
from providers.choices import fan_out
from providers.client_key import KeyHeader
from providers.models.narrowing import per_model
from providers.models.schema_subsets import COHERE
from providers.remote.exchange import exchange, failure_of
from providers.remote.http import BESIDE_VERSION, HttpClient
from providers.remote.model_list import MAX_LIST_BYTES, KeptModels

__all__ = ["CohereProvider"]

_BASE_URL = "https://api.cohere.com/v2"
_MODELS = f"{BESIDE_VERSION}v1/models?endpoint=chat&page_size=1000"
_REQUEST_ID = "x-request-id"
_READY = Readiness(ReadinessState.READY)
_NO_DEFAULTS = frozenset(("model", "messages", "stream"))
_FIELDS = frozenset(
    (
        "messages",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "stop",
        "n",
        "tools",
        "tool_choice",
        "output_format",
        "reasoning.effort",
        "reasoning.budget_tokens",
        "priority",
    )
)
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


class _ModelList(Struct):
    models: list[_ModelRow] = []


_decode_models = Decoder(_ModelList).decode


class CohereProvider:
    """One configured account; satisfies `providers.base.Provider`."""

    def __init__(self, settings: ProviderSettings) -> None:
        """Opens no connection. Raises ValueError on settings that can't work."""
        for name in settings.params:
            if name in _NO_DEFAULTS:
                raise ValueError(f"providers.{settings.name}.params.{name}: this field can't have a default")
        auth = {"authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        self._name = settings.name
        key_header = KeyHeader("authorization", "Bearer ")
        self._client = HttpClient(settings, settings.base_url or _BASE_URL, auth, key_header=key_header)
        self._upstream = CohereUpstream(
            settings.name, defaults={name: msgspec.json.encode(value) for name, value in settings.params.items()}
        )
        self._models = KeptModels(self._fetch_models)

    @property
    def name(self) -> str:
        return self._name

    async def start(self) -> None:
        """Nothing runs in the background; the first call opens the first connection."""

    def capabilities(self, model: str) -> Capabilities:
        return _CAPABILITIES(model)

    def readiness(self, model: str) -> Readiness:
        return _READY

    async def models(self) -> Sequence[ModelEntry]:
        """GET /v1/models, kept for a minute."""
        return await self._models.get()

    async def _fetch_models(self) -> Sequence[ModelEntry]:
        with await self._client.get(_MODELS) as answer:
            if answer.status != 200:
                raise await failure_of(self._name, self._upstream, answer)
            body = await answer.body(MAX_LIST_BYTES)
        try:
            rows = _decode_models(body).models
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadUpstreamResponse(f"{self._name}: GET /models is not a model list") from error
        return tuple([_entry(row) for row in rows])

    def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        return fan_out(self._call, request)

    def _call(self, request: Request) -> AsyncGenerator[Batch, None]:
        return exchange(self._client, self._upstream, request, _REQUEST_ID)

    async def aclose(self) -> None:
        await self._client.aclose()


def _entry(row: _ModelRow) -> ModelEntry:
    context = None if row.context_length is None else int(row.context_length)
    return ModelEntry(id=row.name, owned_by="cohere", context=context)
