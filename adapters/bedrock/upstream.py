"""Converse as an upstream: the path, the request body out, events and whole answers in."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from msgspec import DecodeError
from msgspec.json import Decoder

from adapters.alternating_turns import Block
from adapters.bedrock.answer import parse_whole, stream_parser
from adapters.bedrock.errors import parse_error
from adapters.bedrock.thinking import thinking_of
from adapters.bedrock.turns import CACHE, Conversation, cache_point, conversation_of
from adapters.bedrock.vocabulary import NAMES
from adapters.call_objects import NO_PARAMETERS, allowed_tools
from adapters.canonical.errors import GatewayError, InvalidRequest, UnsupportedParameter
from adapters.canonical.events import Event
from adapters.canonical.request import NONE, REQUIRED, Request, Tool
from adapters.canonical.tool_kinds import FUNCTION
from adapters.model_path import model_path
from adapters.raw_json import add_missing
from adapters.sse_answer import FrameDecoder, SseAnswerParser

__all__ = ["ConverseUpstream"]

_MAX_CACHE_POINTS = 4
_TIERS = ("default", "priority", "flex", "reserved")
_STRINGS = Decoder(dict[str, str])


class ConverseUpstream:
    """POST {base}/model/{model}/converse and converse-stream, for the provider of this name.

    `frames` makes what takes AWS's event stream apart: each event as `{"<type>": payload}`. `defaults` are raw body
    fields sent where the request has none.
    """

    path = "/model"

    def __init__(
        self, provider: str, frames: Callable[[], FrameDecoder], *, defaults: Mapping[str, bytes] | None = None
    ) -> None:
        self._provider = provider
        self._frames = frames
        self._defaults = defaults or {}

    def path_of(self, request: Request) -> str:
        return f"{self.path}/{model_path(request.model)}/{'converse-stream' if request.stream else 'converse'}"

    def render_request(self, request: Request) -> bytes:
        """Raises InvalidRequest for a conversation that the API would refuse, naming what is wrong."""
        return orjson.dumps(self._body(request))

    def _body(self, request: Request) -> dict[str, Any]:
        conversation = conversation_of(request, self._provider)
        tools = _tool_config(request, conversation)
        points = [] if tools is None else [tool for tool in tools["tools"] if CACHE in tool]
        conversation.limit_cache_points(_MAX_CACHE_POINTS - len(points))
        body: dict[str, Any] = {}
        if conversation.system:
            body["system"] = conversation.system
        body["messages"] = conversation.messages()
        inference = _inference(request)
        if inference:
            body["inferenceConfig"] = inference
        if tools is not None:
            body["toolConfig"] = tools
        thinking = thinking_of(request, lost_its_thoughts=conversation.lost_its_thoughts)
        extra = dict(thinking.fields)
        if request.sampling.top_k is not None:
            extra["top_k"] = request.sampling.top_k
        if extra:
            body["additionalModelRequestFields"] = extra
        output = _output_config(request, thinking.effort)
        if output:
            body["outputConfig"] = output
        if request.service_tier is not None:
            body["serviceTier"] = {"type": _tier(request.service_tier)}
        if request.metadata is not None:
            body["requestMetadata"] = _request_metadata(request.metadata)
        add_missing(body, self._defaults)
        return body

    def stream_parser(self, request: Request) -> SseAnswerParser:
        return stream_parser(self._provider, NAMES.originals(request), self._frames())

    def parse_body(self, request: Request, body: bytes) -> list[Event]:
        return parse_whole(self._provider, NAMES.originals(request), body)

    def parse_error(self, status: int, body: bytes) -> GatewayError:
        return parse_error(status, body)


def _inference(request: Request) -> dict[str, Any]:
    sampling = request.sampling
    found = {
        "maxTokens": request.max_tokens,
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "stopSequences": sampling.stop or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _output_config(request: Request, effort: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if effort is None else {"effort": effort}
    wanted = request.output_format
    if wanted is None or wanted.kind == "text":
        return found
    if wanted.kind != "json_schema" or wanted.schema is None:
        raise UnsupportedParameter.at("response_format", f"Bedrock has no format {wanted.kind} without a schema")
    schema: dict[str, Any] = {"schema": wanted.schema.decode()}
    if wanted.name is not None:
        schema["name"] = wanted.name
    if wanted.description is not None:
        schema["description"] = wanted.description
    found["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": schema}}
    return found


def _tier(word: str) -> str:
    tier = "default" if word == "auto" else word
    if tier not in _TIERS:
        raise UnsupportedParameter.at("service_tier", f"Bedrock has no tier {word}")
    return tier


def _request_metadata(raw: bytes) -> dict[str, str]:
    try:
        return _STRINGS.decode(raw)
    except DecodeError as error:
        raise InvalidRequest.at("metadata", "Bedrock takes strings by name") from error


def _tool_config(request: Request, conversation: Conversation) -> dict[str, Any] | None:
    """The tools and the choice. The API demands a declaration of tools wherever the conversation holds a call."""
    choice = request.tool_choice
    if choice is not None and choice.mode == NONE:
        if conversation.called:
            raise UnsupportedParameter.at("tool_choice", "Bedrock can't forbid calls after calls")
        return None
    tools = allowed_tools(request)
    specs = [spec for tool in tools for spec in _specs(tool)]
    if not tools:
        specs = [_spec(Tool(kind=FUNCTION, name=name)) for name in dict.fromkeys(conversation.called)]
    if not specs:
        return None
    found: dict[str, Any] = {"tools": specs}
    if choice is not None and choice.name is not None:
        found["toolChoice"] = {"tool": {"name": NAMES.sent(choice.name)}}
    elif choice is not None:
        found["toolChoice"] = {"any": {}} if choice.mode == REQUIRED else {"auto": {}}
    return found


def _specs(tool: Tool) -> list[Block]:
    return [_spec(tool)] if tool.cache is None else [_spec(tool), cache_point(tool.cache)]


def _spec(tool: Tool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": NAMES.sent(tool.name)}
    if description := tool.whole_description:
        found["description"] = description
    found["inputSchema"] = {"json": orjson.Fragment(tool.parameters or NO_PARAMETERS)}
    if tool.strict is not None:
        found["strict"] = tool.strict
    return {"toolSpec": found}
