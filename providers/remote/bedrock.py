"""The provider for AWS Bedrock's Converse API over HTTP.

Joins the dialect, HTTP and AWS's signatures. Owns addresses, credentials and what which model takes; no wire words, no
retries.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

from msgspec.structs import replace

from adapters.bedrock.embeddings import embedding_model, parse_embeddings, render_embeddings
from adapters.bedrock.invocation import invocation_path
from adapters.bedrock.rerank import is_of_cohere, parse_rerank, ranks, render_rerank
from adapters.bedrock.upstream import ConverseUpstream
from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.messages import (
    Audio,
    Document,
    File,
    Image,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from adapters.canonical.request import Request
from adapters.canonical.rerank import RerankRequest, RerankResult
from providers.abilities import EXTRAS, lacks
from providers.base import Batch, Capabilities, ModelEntry, ProviderSettings
from providers.choices import fan_out
from providers.client_key import BEARER
from providers.models.narrowing import per_model
from providers.models.schema_subsets import ANTHROPIC
from providers.remote.account import RemoteAccount
from providers.remote.aws import AwsSignature, EventStreamFrames, require_botocore
from providers.remote.bedrock_models import control_url, fetch_bedrock_models
from providers.remote.default_fields import default_fields
from providers.remote.embedding_batches import embed_in_batches
from providers.remote.exchange import exchange
from providers.remote.fetched_media import FetchedMedia
from providers.remote.forced_output import forced_output, needs_tool
from providers.remote.http import HttpClient
from providers.remote.question import Reply, post_question

__all__ = ["BedrockProvider"]

_REQUEST_ID = "x-amzn-requestid"
_NO_DEFAULTS = frozenset(("model", "messages", "system"))
_STREAM = {"accept": "application/vnd.amazon.eventstream"}
_FIELDS = frozenset(
    (
        "messages", "max_tokens", "temperature", "top_p", "stop", "n", "tools", "tool_choice", "output_format",
        "reasoning.effort", "service_tier", "metadata",
    )
)  # fmt: skip
_PARTS: frozenset[type[Part]] = frozenset(
    (Text, Refusal, Reasoning, ToolCall, ToolResult, Image, Audio, Video, File, Document)
)
_MORE_FIELDS: Mapping[str, frozenset[str]] = {
    # What goes to the models of a family past Converse, by a word of their names.
    "claude": frozenset(("top_k", "reasoning.budget_tokens")),
    "mistral": frozenset(("top_k",)),
}


_NOT_WHILE_THINKING = {"claude": frozenset(("temperature", "top_p", "top_k"))}


def _capabilities(more: frozenset[str], excluded: frozenset[str] = frozenset()) -> Callable[[str], Capabilities]:
    return per_model(
        Capabilities(
            fields=_FIELDS | more,
            parts=_PARTS,
            output_formats=frozenset(("json_schema",)),
            schema_lacks=ANTHROPIC,
            not_while_thinking=excluded,
        )
    )


_OF_FAMILY = {
    word: _capabilities(more, _NOT_WHILE_THINKING.get(word, frozenset())) for word, more in _MORE_FIELDS.items()
}
_OF_OTHERS = _capabilities(frozenset())


class BedrockProvider(RemoteAccount):
    """One account in one region; satisfies `providers.base.Provider`, and Embedder and Reranker of `abilities`.

    It is no `Prober`: its lists are at another host, which an account may well not reach, and nothing else is free to
    ask.
    """

    def __init__(self, settings: ProviderSettings) -> None:
        """Opens no connection. Raises ValueError on settings that can't work, ImportError without botocore."""
        require_botocore(settings.name)
        region = settings.options.get("region")
        if region is None:
            raise ValueError(f"providers.{settings.name}.region: required for the type bedrock")
        base_url = settings.base_url or f"https://bedrock-runtime.{region}.amazonaws.com"
        super().__init__(settings.name, _client(settings, base_url, str(region)), self._fetch_models)
        self._control = _client(settings, control_url(base_url), str(region))
        self._media = FetchedMedia(settings.fetcher, (Image, Audio, Video, File, Document))
        self._upstream = ConverseUpstream(
            settings.name,
            EventStreamFrames,
            defaults=default_fields(settings, _NO_DEFAULTS),
        )

    def capabilities(self, model: str) -> Capabilities:
        family = next((word for word in _OF_FAMILY if word in model), "")
        return _OF_FAMILY.get(family, _OF_OTHERS)(model)

    async def _fetch_models(self) -> Sequence[ModelEntry]:
        """GET of foundation models and inference profiles."""
        return await fetch_bedrock_models(self._control, self._upstream)

    def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        return self._media.stream(self._answers, request)

    def _answers(self, request: Request) -> AsyncGenerator[Batch, None]:
        return fan_out(self._answer, request)

    def _answer(self, request: Request) -> AsyncGenerator[Batch, None]:
        return forced_output(self._call, request) if needs_tool(request) else self._call(request)

    def _call(self, request: Request) -> AsyncGenerator[Batch, None]:
        headers = _STREAM if request.stream else None
        return exchange(self._client, self._upstream, request, path=self._upstream.path_of(request), headers=headers)

    def embedding_fields(self, model: str) -> frozenset[str]:
        """See `providers.abilities.Embedder.embedding_fields`."""
        known = embedding_model(model)
        return frozenset() if known is None else known.fields

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """POST /model/{model}/invoke, for as many texts as the model takes at once."""
        known = embedding_model(request.model)
        if known is None:
            raise lacks(request.model, "gives no embeddings")

        async def call(some: EmbeddingRequest) -> EmbeddingResult:
            reply = await self._invoke(some, render_embeddings(some, known))
            return replace(parse_embeddings(some, reply.body, reply.headers), request_id=reply.request_id)

        return await embed_in_batches(call, request, known.most)

    def rerank_fields(self, model: str) -> frozenset[str]:
        """See `providers.abilities.Reranker.rerank_fields`."""
        return frozenset(("top_n", EXTRAS)) if is_of_cohere(model) else frozenset(("top_n",))

    async def rerank(self, request: RerankRequest) -> RerankResult:
        """POST /model/{model}/invoke."""
        if not ranks(request.model):
            raise lacks(request.model, "does not rank")
        reply = await self._invoke(request, render_rerank(request))
        return replace(parse_rerank(request, reply.body, reply.headers), request_id=reply.request_id)

    async def _invoke(self, request: EmbeddingRequest | RerankRequest, body: bytes) -> Reply:
        path = invocation_path(request.model)
        return await post_question(self._client, self._upstream, path, body, request_id=request.request_id)

    async def aclose(self) -> None:
        await super().aclose()
        await self._control.aclose()


def _client(settings: ProviderSettings, base_url: str, region: str) -> HttpClient:
    """A key is a Bedrock API key, sent as a bearer; without one, calls are signed."""
    if settings.api_key:
        return HttpClient(settings, base_url, BEARER, request_id_header=_REQUEST_ID)
    signature = AwsSignature(settings.name, base_url, region=region)
    return HttpClient(settings, base_url, sign=signature.sign, request_id_header=_REQUEST_ID)
