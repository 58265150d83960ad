"""The provider for servers that speak OpenAI's Responses API over HTTP.

Joins the dialect and HTTP. Owns what such a server can express; no wire words, no retries.
"""

from collections.abc import AsyncGenerator, Callable, Sequence

from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.errors import GatewayError, MethodNotAllowed, NotFound, UpstreamError
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
)
from adapters.canonical.request import EXPRESSIBLE_FIELDS, Request
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION, HOSTED, MCP
from adapters.openai.responses.upstream import ResponsesUpstream, is_openais_own
from adapters.openai.vocabulary import RESPONSES, RESPONSES_FIELDS
from providers.abilities import Compacted, lacks
from providers.base import Batch, Capabilities, ModelEntry, ProviderSettings
from providers.choices import fan_out
from providers.client_key import BEARER
from providers.models.narrowing import per_model
from providers.remote.account import ProbedAccount
from providers.remote.default_fields import default_fields
from providers.remote.exchange import exchange
from providers.remote.http import HttpClient
from providers.remote.openai_models import fetch_openai_models
from providers.remote.question import post_question

__all__ = ["OpenAIResponses"]

_MAX_KNOWN = 1000
_NO_COMPACTION = "has no compaction of its own"
_NO_DEFAULTS = frozenset(("model", "input", "stream", "store"))
_SPELLINGS = dict.fromkeys(("max_tokens", "max_completion_tokens"), "max_output_tokens")
_OPENAIS_FIELDS = frozenset(
    (
        "messages", "n", "logprobs", "max_tokens", "max_tool_calls", "metadata", "output_format", "reasoning.effort",
        "reasoning.summary", "reasoning.context", "reasoning.mode", "tools", "tool_choice", "parallel_tool_calls",
        "truncation", "verbosity", "include_obfuscation", "temperature", "top_p", "user", "moderation", "service_tier",
        "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
    )
)  # fmt: skip
"""What OpenAI takes of this API; to anything else it answers 400."""
_FIELDS = _OPENAIS_FIELDS | EXPRESSIBLE_FIELDS & frozenset(RESPONSES_FIELDS.by_name) | {"stop", "logit_bias"}
"""Other servers take fields of chat, of engines and of templates as well."""
_PARTS: frozenset[type[Part]] = frozenset(
    (Text, Refusal, Reasoning, ToolCall, ToolResult, Image, File, Audio, Document, Opaque)
)


def _of_fields(fields: frozenset[str]) -> Callable[[str], Capabilities]:
    return per_model(
        Capabilities(
            fields=fields,
            forwards=frozenset((RESPONSES,)),
            parts=_PARTS,
            tool_kinds=frozenset((FUNCTION, CUSTOM, HOSTED, MCP)),
        )
    )


_OF_OPENAIS_OWN = _of_fields(_OPENAIS_FIELDS)
_OF_OTHERS = _of_fields(_FIELDS)


class _Count(Struct):
    input_tokens: int


_decode_count = Decoder(_Count).decode


class OpenAIResponses(ProbedAccount):
    """One configured server; satisfies `Provider`, and `TokenCounter` and `Compactor` of `providers.abilities`."""

    def __init__(self, settings: ProviderSettings) -> None:
        """Opens no connection. Raises ValueError on settings that can't work."""
        if settings.base_url is None:
            raise ValueError(f"providers.{settings.name}.base_url: required for the type {settings.type}")
        client = HttpClient(settings, settings.base_url, BEARER)
        super().__init__(settings.name, client, self._fetch_models)
        self._upstream = ResponsesUpstream(settings.name, default_fields(settings, _NO_DEFAULTS, _SPELLINGS))
        self._not_compacted: set[str] = set()

    def capabilities(self, model: str) -> Capabilities:
        return _OF_OPENAIS_OWN(model) if is_openais_own(model) else _OF_OTHERS(model)

    async def _fetch_models(self) -> Sequence[ModelEntry]:
        """GET /models."""
        return await fetch_openai_models(self._client, self._upstream)

    def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        return fan_out(self._call, request)

    def _call(self, request: Request) -> AsyncGenerator[Batch, None]:
        return exchange(self._client, self._upstream, request)

    async def count_tokens(self, request: Request) -> Sequence[int]:
        """POST /responses/input_tokens."""
        upstream = self._upstream
        body = upstream.render_count(request)
        reply = await post_question(self._client, upstream, upstream.count_path, body, request_id=request.request_id)
        return (reply.read(_decode_count, self.name, "token count").input_tokens,)

    async def compact(self, request: Request) -> Compacted:
        """POST /responses/compact, where the server has it for the model; else it is not asked again."""
        upstream = self._upstream
        if request.model in self._not_compacted:
            raise lacks(request.model, _NO_COMPACTION)
        body = upstream.render_compaction(request)
        try:
            reply = await post_question(
                self._client, upstream, upstream.compact_path, body, request_id=request.request_id
            )
        except GatewayError as error:
            if not _is_not_there(error):
                raise
            if len(self._not_compacted) < _MAX_KNOWN:
                self._not_compacted.add(request.model)
            raise lacks(request.model, _NO_COMPACTION) from error
        return Compacted(*reply.read(upstream.parse_compaction, self.name, "compaction"))


def _is_not_there(error: GatewayError) -> bool:
    """Whether it says that the server has no such path, or not the model: then generation says so as well."""
    if isinstance(error, UpstreamError):
        return error.upstream_status in (404, 405, 501)
    return isinstance(error, NotFound | MethodNotAllowed)
