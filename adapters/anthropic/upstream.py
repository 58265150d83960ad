"""The Messages API as an upstream: the request body and its headers out, events and whole answers in."""

from collections.abc import Mapping
from typing import Any

import orjson

from adapters import minted_ids
from adapters.anthropic.answer import parse_whole, stream_parser
from adapters.anthropic.errors import parse_error
from adapters.anthropic.thinking import DEFAULT_MAX_TOKENS, Thinking, thinking_of
from adapters.anthropic.tools import tool_choice_object, tool_objects
from adapters.anthropic.turns import Conversation, content_of, conversation_of
from adapters.anthropic.vocabulary import IDS, MESSAGES, NAMES
from adapters.call_ids import OwnIds
from adapters.canonical.errors import GatewayError, InvalidRequest, UnsupportedParameter
from adapters.canonical.events import Event
from adapters.canonical.request import REQUIRED, Request
from adapters.claude_models import ModelTraits, is_known, traits_of
from adapters.raw_json import add_missing
from adapters.sse_answer import SseAnswerParser
from adapters.tool_names import renamed

__all__ = ["MessagesUpstream"]

_LATEST = "2026-10-21"
_WITH_SAMPLING = "2023-06-01"
"""The version that takes temperature, top_p and top_k; the latest refuses them even at their defaults."""
_SAMPLING = ("temperature", "top_p", "top_k")
_MAX_BREAKPOINTS = 4
_TIERS = {"auto": "auto", "standard_only": "standard_only", "default": "standard_only"}
_CACHE = "cache_control"
_OBJECTS = ("thinking", "output_config")
_NOT_COUNTED = ("max_tokens", "stop_sequences", "metadata", "service_tier", "stream", *_SAMPLING)
"""What POST /messages/count_tokens does not know."""


class MessagesUpstream:
    """POST {base}/messages for the provider of this name; thoughts that another one signed are not sent to it.

    `version` "auto" chooses it for each request. `defaults` are raw body fields sent where the request has none.
    """

    path = "/messages"
    count_path = "/messages/count_tokens"

    def __init__(
        self,
        provider: str,
        *,
        version: str = "auto",
        defaults: Mapping[str, bytes] | None = None,
    ) -> None:
        self._provider = provider
        self._version = version
        self._defaults = defaults or {}

    def headers(self, request: Request | None = None) -> Mapping[str, str]:
        """The headers that go with a request; without one, those of any other call."""
        found = {"anthropic-version": self._version}
        if self._version == "auto":
            sampled = request is not None and any(
                getattr(request.sampling, name) is not None or name in self._defaults for name in _SAMPLING
            )
            found["anthropic-version"] = _WITH_SAMPLING if sampled else _LATEST
        if request is not None and request.dialect == MESSAGES:
            found.update(request.headers)
        return found

    def render_request(self, request: Request) -> bytes:
        """Raises InvalidRequest for a conversation that the API would refuse, naming what is wrong."""
        return orjson.dumps(self._body(request))

    def render_count(self, request: Request) -> bytes:
        """The same without what is not counted."""
        body = self._body(request)
        return orjson.dumps({name: value for name, value in body.items() if name not in _NOT_COUNTED})

    def _body(self, request: Request) -> dict[str, Any]:
        traits = traits_of(request.model)
        if request.dialect != MESSAGES:
            request = renamed(request, NAMES, IDS)
        _check_forced(request, traits)
        conversation = conversation_of(request, self._provider)
        thinking = thinking_of(request, traits)
        if conversation.lost_its_thoughts and _is_due(thinking, request):
            thinking.config = {"type": "disabled"}
        tools = tool_objects(request)
        _limit_breakpoints(request, tools or (), conversation)
        body: dict[str, Any] = {"model": request.model}
        if conversation.system:
            body["system"] = content_of(conversation.system)
        body["messages"] = conversation.messages()
        body["max_tokens"] = request.max_tokens
        if request.max_tokens is None:
            body["max_tokens"] = DEFAULT_MAX_TOKENS + thinking.least_tokens
            if "max_tokens" in self._defaults:
                body["max_tokens"] = orjson.Fragment(self._defaults["max_tokens"])
        if request.stream:
            body["stream"] = True
        if tools is not None:
            body["tools"] = tools
        choice = tool_choice_object(request)
        if choice is not None:
            body["tool_choice"] = choice
        if thinking.config is not None:
            body["thinking"] = thinking.config
        output_config = _output_config(request, thinking.effort)
        if output_config:
            body["output_config"] = output_config
        self._add_plain_fields(body, request)
        return body

    def _add_plain_fields(self, body: dict[str, Any], request: Request) -> None:
        sampling = request.sampling
        if sampling.temperature is not None and sampling.temperature > 1:
            raise InvalidRequest.at("temperature", "Anthropic's models take 0 to 1")
        for name in _SAMPLING:
            value = getattr(sampling, name)
            if value is not None:
                body[name] = value
        if request.dialect != MESSAGES and "temperature" in body and "top_p" in body:
            _leave_one(body)
        if sampling.stop:
            body["stop_sequences"] = sampling.stop
        user = request.safety_identifier if request.safety_identifier is not None else request.user
        if user is not None:
            body["metadata"] = {"user_id": user}
        if request.service_tier is not None:
            if request.service_tier not in _TIERS:
                raise UnsupportedParameter.at("service_tier", f"Anthropic has no tier {request.service_tier}")
            body["service_tier"] = _TIERS[request.service_tier]
        if request.dialect == MESSAGES:
            _add_extras(body, request.extras)
        add_missing(body, self._defaults)

    def stream_parser(self, request: Request) -> SseAnswerParser:
        return stream_parser(self._provider, _names(request), OwnIds(minted_ids.new_id, request.messages))

    def parse_body(self, request: Request, body: bytes) -> list[Event]:
        return parse_whole(self._provider, body, _names(request), OwnIds(minted_ids.new_id, request.messages))

    def parse_error(self, status: int, body: bytes) -> GatewayError:
        return parse_error(status, body)


def _add_extras(body: dict[str, Any], extras: Mapping[str, bytes]) -> None:
    """Unmapped fields of the body, and of the objects in it that have others which are mapped."""
    for name, raw in extras.items():
        outer, _, inner = name.partition(".")
        if inner and outer in _OBJECTS:
            body.setdefault(outer, {})[inner] = orjson.Fragment(raw)
        else:
            body.setdefault(name, orjson.Fragment(raw))


def _leave_one(body: dict[str, Any]) -> None:
    """Models from 4.1 on refuse temperature and top_p beside each other: one that says nothing is left out, as many
    clients always send both."""
    for name in ("top_p", "temperature"):
        if body[name] == 1:
            del body[name]
            return


def _names(request: Request) -> Mapping[str, str]:
    """The client's names of tools by those that were sent in their place."""
    return {} if request.dialect == MESSAGES else NAMES.originals(request)


def _check_forced(request: Request, traits: ModelTraits) -> None:
    choice = request.tool_choice
    if choice is not None and choice.mode == REQUIRED and not traits.forced_choice:
        raise UnsupportedParameter.at("tool_choice", "this model can't be made to call a tool")


def _is_due(thinking: Thinking, request: Request) -> bool:
    """Calls have to begin with a thought. Of a model that nothing is known of it is taken to be so, unless a client of
    this dialect knows better."""
    return thinking.is_due or (thinking.is_on and request.dialect != MESSAGES and not is_known(request.model))


def _output_config(request: Request, effort: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if effort is not None:
        found["effort"] = effort
    wanted = request.output_format
    if wanted is not None:
        if wanted.kind != "json_schema" or wanted.schema is None:
            raise UnsupportedParameter.at("response_format", f"Anthropic has no format {wanted.kind} without a schema")
        found["format"] = {"type": "json_schema", "schema": orjson.Fragment(wanted.schema)}
    return found


def _limit_breakpoints(request: Request, tools: Any, conversation: Conversation) -> None:
    """At most four cache breakpoints: those of tools and system stay, then the newest of the messages."""
    left = _MAX_BREAKPOINTS - (_CACHE in request.extras)
    raw_tools = sum(tool.raw is not None and tool.cache is not None for tool in request.tools or ())
    fixed = [block for block in (*tools, *conversation.system) if isinstance(block, dict) and _CACHE in block]
    moving = [block for block in conversation.blocks() if _CACHE in block]
    left = max(0, left - raw_tools)
    if len(fixed) + len(moving) <= left:
        return
    kept = fixed[-left:] if left else []
    left -= len(kept)
    kept += moving[-left:] if left else []
    keep = set(map(id, kept))
    for block in (*fixed, *moving):
        if id(block) not in keep:
            del block[_CACHE]
