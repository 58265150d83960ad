"""The provider for Anthropic's Messages API over HTTP.

Joins the dialect and HTTP. Owns the headers of the key, and which fields which model takes; no wire words, no retries.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from functools import cache

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from adapters.anthropic.upstream import MessagesUpstream
from adapters.anthropic.vocabulary import MESSAGES
from adapters.canonical.messages import (
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
from adapters.canonical.request import Request, Sampling
from adapters.canonical.tool_kinds import FUNCTION, HOSTED
from adapters.claude_models import ModelTraits, traits_of
from providers.base import Batch, Capabilities, ModelEntry, ProviderSettings
from providers.choices import fan_out
from providers.client_key import KeyHeader
from providers.models.narrowing import per_model
from providers.models.schema_subsets import ANTHROPIC as ANTHROPIC_LACKS
from providers.remote import addresses
from providers.remote.account import ProbedAccount
from providers.remote.default_fields import default_fields
from providers.remote.exchange import exchange
from providers.remote.forced_output import forced_output, needs_tool
from providers.remote.http import HttpClient
from providers.remote.paused_turns import continued
from providers.remote.question import fetch_list, post_question

__all__ = ["AnthropicProvider"]

_NO_SAMPLING = Sampling()
_MAX_UNSTREAMED_TOKENS = 21_333
"""More than this may take over ten minutes at the rate that Anthropic's SDK counts with: such answers are streamed."""
_NO_DEFAULTS = frozenset(("model", "messages", "system", "stream"))
_SAMPLING = frozenset(("temperature", "top_p", "top_k"))
_BUDGET = frozenset(("reasoning.budget_tokens",))
_FIELDS = _SAMPLING | _BUDGET | frozenset(
    (
        "messages",
        "max_tokens",
        "stop",
        "n",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "output_format",
        "reasoning.effort",
        "reasoning.mode",
        "reasoning.include",
        "service_tier",
        "user",
        "safety_identifier",
        "template.continue_final_message",  # what the API does with a last turn of the assistant
        "template.add_generation_prompt",
    )
)  # fmt: skip
_PARTS: frozenset[type[Part]] = frozenset(
    (Text, Refusal, Reasoning, ToolCall, ToolResult, Image, File, Document, Opaque)
)


class _ModelRow(Struct):
    id: str
    created_at: datetime | None = None
    max_input_tokens: int | None = None


class _ModelList(Struct):
    data: list[_ModelRow]


class _Count(Struct):
    input_tokens: int


_decode_models = Decoder(_ModelList).decode
_decode_count = Decoder(_Count).decode


class AnthropicProvider(ProbedAccount):
    """One configured account; satisfies `providers.base.Provider` and `providers.abilities.TokenCounter`."""

    def __init__(self, settings: ProviderSettings) -> None:
        """Opens no connection. Raises ValueError on settings that can't work."""
        base_url = settings.base_url or addresses.ANTHROPIC
        client = HttpClient(settings, base_url, KeyHeader("x-api-key"), request_id_header="request-id")
        super().__init__(settings.name, client, self._fetch_models)
        self._upstream = MessagesUpstream(
            settings.name,
            version=str(settings.options.get("api_version", "auto")),
            defaults=default_fields(settings, _NO_DEFAULTS),
        )

    def capabilities(self, model: str) -> Capabilities:
        return _of_traits(traits_of(model))(model)

    async def _fetch_models(self) -> Sequence[ModelEntry]:
        """GET /models."""
        upstream = self._upstream
        found = await fetch_list(self._client, upstream, "/models?limit=1000", _decode_models, upstream.headers())
        return tuple([_entry(row) for row in found.data])

    def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        return fan_out(self._answer, request)

    def _answer(self, request: Request) -> AsyncGenerator[Batch, None]:
        """One choice. Only a turn in which the upstream runs tools itself can be paused."""
        if not request.stream and (request.max_tokens or 0) > _MAX_UNSTREAMED_TOKENS:
            request = replace(request, stream=True)
        if needs_tool(request):
            return forced_output(self._call, request)
        if any(tool.kind == HOSTED for tool in request.tools or ()):
            return continued(self._call, request)
        return self._call(request)

    def _call(self, request: Request) -> AsyncGenerator[Batch, None]:
        upstream = self._upstream
        return exchange(self._client, upstream, request, headers=upstream.headers(request))

    async def count_tokens(self, request: Request) -> Sequence[int]:
        """POST /messages/count_tokens."""
        upstream = self._upstream
        body = upstream.render_count(request)
        headers = upstream.headers(replace(request, sampling=_NO_SAMPLING))
        reply = await post_question(
            self._client, upstream, upstream.count_path, body, request_id=request.request_id, headers=headers
        )
        return (reply.read(_decode_count, self.name, "token count").input_tokens,)


def _entry(row: _ModelRow) -> ModelEntry:
    created = None if row.created_at is None else int(row.created_at.timestamp())
    return ModelEntry(id=row.id, created=created, owned_by="anthropic", context=row.max_input_tokens)


@cache
def _of_traits(traits: ModelTraits) -> Callable[[str], Capabilities]:
    fields = _FIELDS - (frozenset() if traits.sampling else _SAMPLING) - (frozenset() if traits.budgets else _BUDGET)
    return per_model(
        Capabilities(
            fields=fields,
            forwards=frozenset((MESSAGES,)),
            parts=_PARTS,
            tool_kinds=frozenset((FUNCTION, HOSTED)),
            output_formats=frozenset(("json_schema",)),
            schema_lacks=ANTHROPIC_LACKS,
            not_while_thinking=_SAMPLING,
        )
    )
