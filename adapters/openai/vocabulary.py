"""OpenAI's words: dialect names, finish reasons, and one table of request fields that parse and render share.

Sources: the openai SDK 3.57 types and OpenAI's API description of 2026-08; the engine extras are spelled as vLLM 0.33
does; a vendor's row names what it spells otherwise.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

from msgspec import Meta
from msgspec.json import Decoder

from adapters.canonical.stop_reason import StopReason
from adapters.canonical.tool_kinds import CUSTOM
from adapters.field_types import (
    BOOL,
    COUNT,
    FRACTION,
    OPEN_COUNT,
    PENALTY,
    RAW_OBJECT,
    SHORT_TEXT,
    TEXT,
    TEXTS,
    TOP_LOGPROBS,
    Temperature,
)
from adapters.json_fields import Decodes, RawDecoder

__all__ = [
    "CHAT",
    "CHAT_FIELDS",
    "CHAT_HINTS",
    "COMPLETIONS",
    "COMPLETION_FIELDS",
    "DONE",
    "FINISH_WORDS",
    "KEEPALIVE",
    "RESPONSES",
    "RESPONSES_FIELDS",
    "SPELLINGS",
    "STOP_REASONS",
    "FieldTable",
    "RequestField",
    "Seed",
    "TokenId",
    "arguments_field",
]

CHAT = "openai.chat"
COMPLETIONS = "openai.completions"
RESPONSES = "openai.responses"

KEEPALIVE = b": keepalive\n\n"
DONE = b"data: [DONE]\n\n"

STOP_REASONS = {
    "stop": StopReason.STOP,
    "eos": StopReason.STOP,  # Together
    "length": StopReason.LENGTH,
    "max_tokens": StopReason.LENGTH,
    "tool_calls": StopReason.TOOL_CALLS,
    "function_call": StopReason.TOOL_CALLS,
    "content_filter": StopReason.CONTENT_FILTER,
    "abort": StopReason.CANCELLED,  # SGLang, vLLM
    "error": StopReason.ERROR,  # OpenRouter
}
"""Upstream's finish_reason to ours; an unknown word is OTHER and is kept raw."""

CHAT_HINTS: Mapping[str, Callable[[object], bool] | None] = {
    "messages[].provider_specific_fields": None,  # LiteLLM's copy of what its message says anyway
    "messages[].prefix": lambda begins: begins is False,  # Mistral: no answer that is to be gone on with
}
"""Unmapped fields that say nothing about an answer, as those of Anthropic are told."""

FINISH_WORDS = {
    StopReason.STOP: "stop",
    StopReason.LENGTH: "length",
    StopReason.TOOL_CALLS: "tool_calls",
    StopReason.CONTENT_FILTER: "content_filter",
    StopReason.PAUSED: "stop",
    StopReason.OTHER: "stop",
}
"""Ours to the client's finish_reason. ERROR and CANCELLED are never a finish word but an error."""


def arguments_field(kind: str) -> str:
    """Where a call of this kind has its arguments, which are any text for a custom tool."""
    return "input" if kind == CUSTOM else "arguments"


_INT64 = 2**63 - 1
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=-_INT64 - 1, le=_INT64)]
RAW_LIST = RawDecoder("array")
TOKEN_IDS = Decoder(list[TokenId])


class RequestField(NamedTuple):
    """One field of a body: where it goes in the canonical request (`group` "" is the request itself), and its type.

    `is_sent`: upstreams get it; what is not is read by the gateway.
    """

    wire: str
    group: str
    name: str
    decoder: Decodes[Any]
    is_sent: bool = True


def _top(name: str, decoder: Decodes[Any]) -> RequestField:
    return RequestField(name, "", name, decoder)


def _sampling(name: str, decoder: Decodes[Any], wire: str | None = None) -> RequestField:
    return RequestField(wire or name, "sampling", name, decoder)


_COMMON = (
    _sampling("temperature", Decoder(Temperature)),
    _sampling("top_p", FRACTION),
    _sampling("presence_penalty", PENALTY),
    _sampling("frequency_penalty", PENALTY),
    _sampling("seed", Decoder(Seed)),
    _top("user", SHORT_TEXT),
)
_STANDARD = (*_COMMON, _top("n", Decoder(Annotated[int, Meta(ge=1, le=128)])))
_ENGINE = (
    _sampling("top_k", OPEN_COUNT),
    _sampling("min_p", FRACTION),
    _sampling("top_p_min", FRACTION),
    _sampling("typical_p", FRACTION),
    _sampling("repetition_penalty", Decoder(Annotated[float, Meta(gt=0, le=10)])),
    _sampling("stop_token_ids", TOKEN_IDS),
    _sampling("include_stop", BOOL, "include_stop_str_in_output"),
    _sampling("ignore_eos", BOOL),
    _sampling("min_tokens", COUNT),
    _sampling("bad_words", TEXTS),
    _sampling("allowed_token_ids", TOKEN_IDS),
    _sampling("use_beam_search", BOOL),
    _sampling("length_penalty", Decoder(Annotated[float, Meta(ge=-10, le=10)])),
    _sampling("early_stopping", BOOL),
    _sampling("skip_special_tokens", BOOL),
    _sampling("spaces_between_special_tokens", BOOL),
    _top("truncate_prompt_tokens", OPEN_COUNT),
    _top("prompt_logprobs", TOP_LOGPROBS),
    _top("logprob_token_ids", TOKEN_IDS),
    _top("return_token_ids", BOOL),
    _top("return_tokens_as_token_ids", BOOL),
    _top("return_context_logits", BOOL),
    _top("detokenize", BOOL),
    _top("priority", Decoder(Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)])),
    _top("cache_salt", SHORT_TEXT),
    RequestField("request_id", "", "request_id", SHORT_TEXT, is_sent=False),
    RequestField("session_id", "", "session_id", SHORT_TEXT, is_sent=False),
    RequestField("add_special_tokens", "template", "add_special_tokens", BOOL),
)
_CHOICES = (_top("echo", BOOL), _top("best_of", Decoder(Annotated[int, Meta(ge=1, le=128)])))
_TEMPLATE = (
    RequestField("include_reasoning", "reasoning", "include", BOOL),
    RequestField("separate_reasoning", "reasoning", "separate", BOOL),
    RequestField("thinking_token_budget", "reasoning", "budget_tokens", COUNT),
    RequestField("chat_template", "template", "chat_template", TEXT),
    RequestField("chat_template_kwargs", "template", "kwargs", RAW_OBJECT),
    RequestField("add_generation_prompt", "template", "add_generation_prompt", BOOL),
    RequestField("continue_final_message", "template", "continue_final_message", BOOL),
    RequestField("documents", "template", "documents", RAW_LIST),
)
_MESSAGES = (
    _top("parallel_tool_calls", BOOL),
    _top("moderation", RAW_OBJECT),
    _top("service_tier", SHORT_TEXT),
    _top("safety_identifier", SHORT_TEXT),
    _top("prompt_cache_key", SHORT_TEXT),
    _top("prompt_cache_retention", SHORT_TEXT),
    _top("prompt_cache_options", RAW_OBJECT),
)
"""What chat and the Responses API spell alike."""


class FieldTable:
    """Fields of one surface that map one to one, by wire name and by canonical name (as `set_fields` gives it)."""

    def __init__(self, *fields: RequestField) -> None:
        self.by_wire = {field.wire: field for field in fields}
        self.by_name = {
            f"{field.group}.{field.name}" if field.group in ("reasoning", "template") else field.name: field
            for field in fields
        }
        groups: dict[str, list[RequestField]] = {}
        for field in fields:
            if field.is_sent:
                groups.setdefault(field.group, []).append(field)
        self.groups = tuple(
            # A getter of one name would give a bare value, so the first name stands twice.
            (
                group,
                attrgetter(*[field.name for field in found], found[0].name),
                tuple(field.wire for field in found),
            )
            for group, found in groups.items()
        )
        """For each group of a request: what reads the values of fields that are sent, and their wire names."""

    def spelled(self, names: Mapping[str, str]) -> "FieldTable":
        """The same with other wire names for some fields, by canonical name."""
        fields = self.by_name.items()
        return FieldTable(*[field._replace(wire=names.get(name, field.wire)) for name, field in fields])


CHAT_FIELDS = FieldTable(
    *_STANDARD,
    *_MESSAGES,
    _top("modalities", TEXTS),
    _top("audio", RAW_OBJECT),
    _top("prediction", RAW_OBJECT),
    _top("web_search_options", RAW_OBJECT),
    _top("metadata", RAW_OBJECT),
    _top("verbosity", SHORT_TEXT),
    _top("store", BOOL),
    RequestField("reasoning_effort", "reasoning", "effort", SHORT_TEXT),
    *_ENGINE,
    *_CHOICES,
    *_TEMPLATE,
    _top("prompt_token_ids", TOKEN_IDS),
)
"""Fields of chat completions that map one to one. Parsed apart: model, messages, the token limits, stop, logit_bias,
logprobs, tools, tool_choice, response_format, stream, stream_options, functions, function_call."""

COMPLETION_FIELDS = FieldTable(*_STANDARD, _top("suffix", TEXT), *_ENGINE, *_CHOICES)
"""The same for legacy completions. Parsed apart: model, prompt, max_tokens, stop, logit_bias, logprobs, stream."""

RESPONSES_FIELDS = FieldTable(*_COMMON, *_MESSAGES, *_ENGINE, *_TEMPLATE)
"""The same for the Responses API. Parsed apart: what `adapters.openai.responses.parse` takes by name."""

SPELLINGS = {
    "output_format": "response_format",
    "prompts": "prompt",
    "include_obfuscation": "stream_options.include_obfuscation",
}
"""Canonical field names to OpenAI's where no table row tells."""
