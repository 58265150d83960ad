"""The Responses API as an upstream: the request body out, events and whole responses in.

Nothing is kept at the upstream (`store: false`): responses are the gateway's to keep, and what a later turn needs comes
back sealed or encrypted.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from adapters.canonical.errors import GatewayError, UnsupportedParameter
from adapters.canonical.events import Event
from adapters.canonical.messages import Message, Reasoning
from adapters.canonical.request import Request
from adapters.canonical.usage import Usage
from adapters.field_types import TEXTS
from adapters.openai.errors import parse_error
from adapters.openai.request_fields import add_extras, field_values, shorten, stop_and_bias
from adapters.openai.response_format import format_fields, response_format_object
from adapters.openai.responses.answer import parse_whole_response, response_parser
from adapters.openai.responses.input_objects import input_objects, instructions_of
from adapters.openai.responses.usage import parse_response_usage
from adapters.openai.responses.vocabulary import ENCRYPTED, LOGPROBS, OF_REASONING
from adapters.openai.responses.wire import decode_response
from adapters.openai.tools import tool_choice_object, tool_objects
from adapters.openai.vocabulary import RESPONSES, RESPONSES_FIELDS
from adapters.sse_answer import SseAnswerParser
from adapters.tool_names import NameRule, renamed, short

__all__ = ["ResponsesUpstream", "is_openais_own"]

_NESTED = ("reasoning.", "text.")
_COUNTED = frozenset(
    ("input", "instructions", "model", "parallel_tool_calls", "reasoning", "text", "tool_choice", "tools", "truncation")
)
_COMPACTED = frozenset(
    (
        "image",
        "input",
        "instructions",
        "model",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "service_tier",
    )
)
_SELF = "adaptive"
"""Anthropic's word for what models of this API do by themselves."""
_FOREIGN_MODES = ("disabled", "between_tools")
_OPENAIS_OWN = re.compile(r"(?:^|[/.])(?:gpt-\d|o\d|codex-)")
_CALL_IDS = short(64)
_USER_IDS = short(64)
_NAMES = NameRule(first="a-zA-Z0-9_-", allowed="a-zA-Z0-9_-", max_length=64)
"""What these may be. A client of this API has its own word on names of tools."""


def is_openais_own(model: str) -> bool:
    """Whether OpenAI alone serves it, by its name. Such models read back what they thought themselves alone, and answer
    400 to any other text of a thought; open ones, as gpt-oss, read texts."""
    return _OPENAIS_OWN.search(model) is not None


class ResponsesUpstream:
    """POST {base}/responses of the provider with this name. `defaults` are raw body fields sent where the request has
    none."""

    path = "/responses"
    count_path = "/responses/input_tokens"
    compact_path = "/responses/compact"

    def __init__(self, provider: str, defaults: Mapping[str, bytes] | None = None) -> None:
        self._provider = provider
        self._defaults = defaults or {}

    def render_request(self, request: Request) -> bytes:
        return orjson.dumps(self._body(request))

    def render_count(self, request: Request) -> bytes:
        """The body of a count of the prompt's tokens, which takes what the prompt is made of."""
        return orjson.dumps({name: value for name, value in self._body(request).items() if name in _COUNTED})

    def render_compaction(self, request: Request) -> bytes:
        """The body of what makes the input short."""
        return orjson.dumps({name: value for name, value in self._body(request).items() if name in _COMPACTED})

    def parse_compaction(self, body: bytes) -> tuple[tuple[bytes, ...], Usage | None]:
        """The items, raw, and what they cost. Raises msgspec.DecodeError."""
        found = decode_response(body)
        if not found.output:
            raise msgspec.ValidationError("there is no output")
        usage = None if found.usage is None else parse_response_usage(found.usage)
        return tuple(map(bytes, found.output)), usage

    def _body(self, request: Request) -> dict[str, Any]:
        request = renamed(request, None if request.dialect == RESPONSES else _NAMES, _CALL_IDS)
        messages = request.messages or ()
        body: dict[str, Any] = {"model": request.model, "store": False}
        instructions = instructions_of(messages)
        if instructions is not None:
            body["instructions"] = instructions
            messages = messages[1:]
        body["input"] = input_objects(messages, self._provider, plain_thoughts=not is_openais_own(request.model))
        if request.stream:
            body["stream"] = True
            if request.include_obfuscation:
                body["stream_options"] = {"include_obfuscation": True}
        body.update(field_values(request, RESPONSES_FIELDS))
        shorten(body, _USER_IDS)
        body.update(stop_and_bias(request))
        _add_limits(body, request)
        tools = tuple([tool for tool in request.tools or () if not tool.in_messages])
        if tools:
            body["tools"] = tool_objects(tools, request.dialect, RESPONSES)
        if request.tool_choice is not None:
            body["tool_choice"] = tool_choice_object(request.tool_choice, RESPONSES)
        _add_nested(body, request)
        include = self._include(request, messages)
        if include:
            body["include"] = include
        add_extras(body, _without_nested(request), RESPONSES, self._defaults)
        return body

    def stream_parser(self, request: Request) -> SseAnswerParser:
        return response_parser(request, self._provider, _names(request))

    def parse_body(self, request: Request, body: bytes) -> list[Event]:
        return parse_whole_response(request, self._provider, body, _names(request))

    def parse_error(self, status: int, body: bytes) -> GatewayError:
        return parse_error(status, body)

    def _include(self, request: Request, messages: Sequence[Message]) -> list[str]:
        """Encrypted reasoning is asked for where a later turn may need it: models that do not think refuse to."""
        reasoning = request.reasoning
        thinks = reasoning is not None and reasoning.effort not in (None, "none")
        include = [ENCRYPTED] if request.encrypted_reasoning or thinks or self._goes_on(messages) else []
        if request.logprobs is not None:
            include.append(LOGPROBS)
        if request.dialect == RESPONSES and "include" in request.extras:
            include += TEXTS.decode(request.extras["include"])
        return include

    def _goes_on(self, messages: Sequence[Message]) -> bool:
        """Whether this upstream's own thoughts are among the messages."""
        thoughts = [part for message in messages for part in message.parts if isinstance(part, Reasoning)]
        return any(thought.encrypted is not None and thought.origin == self._provider for thought in thoughts)


def _names(request: Request) -> Mapping[str, str]:
    """The client's names of tools by those that were sent in their place."""
    return {} if request.dialect == RESPONSES else _NAMES.originals(request)


def _add_limits(body: dict[str, Any], request: Request) -> None:
    limits = {
        "max_output_tokens": request.max_tokens,
        "max_tool_calls": request.max_tool_calls,
        "top_logprobs": request.logprobs or None,
        "truncation": request.truncation,
        "metadata": None if request.metadata is None else orjson.Fragment(request.metadata),
    }
    body.update({name: value for name, value in limits.items() if value is not None})


def _add_nested(body: dict[str, Any], request: Request) -> None:
    reasoning: dict[str, Any] = {}
    if request.reasoning is not None:
        values = {name: getattr(request.reasoning, name) for name in OF_REASONING}
        reasoning = {name: value for name, value in values.items() if value is not None}
        mode = request.reasoning.mode
        if mode in _FOREIGN_MODES:
            raise UnsupportedParameter.at("reasoning.mode", f"there is no mode {mode}")
        if mode == _SELF:
            del reasoning["mode"]
    text: dict[str, Any] = {}
    wanted = request.output_format
    if wanted is not None and wanted.field is not None and request.dialect == RESPONSES:
        body.update(format_fields(wanted, request.dialect, RESPONSES))
    elif wanted is not None:
        text["format"] = response_format_object(wanted, request.dialect, RESPONSES)
    if request.verbosity is not None:
        text["verbosity"] = request.verbosity
    groups = {"reasoning": reasoning, "text": text}
    if request.dialect == RESPONSES:
        for name, raw in request.extras.items():
            group, _, field = name.partition(".")
            if field and group in groups:
                groups[group][field] = orjson.Fragment(raw)
    body.update({name: found for name, found in groups.items() if found})


def _without_nested(request: Request) -> Request:
    """Without the extras that stand inside other objects, or in `include`."""
    own = {name: raw for name, raw in request.extras.items() if not name.startswith(_NESTED) and name != "include"}
    return request if own == request.extras else replace(request, extras=own)
