"""Cohere's chat as an upstream: the request body out, events and whole answers in."""

from collections.abc import Mapping
from typing import Any

import orjson

from adapters.call_objects import allowed_tools, function_object
from adapters.canonical.errors import GatewayError, UnsupportedParameter, UpstreamAuth
from adapters.canonical.events import Event
from adapters.canonical.request import NONE, REQUIRED, Request
from adapters.cohere.answer import parse_whole, stream_parser
from adapters.cohere.messages import message_objects
from adapters.error_words import told_in
from adapters.raw_json import add_missing
from adapters.sse_answer import SseAnswerParser
from adapters.upstream_errors import error_class_of, upstream_failure

__all__ = ["CohereUpstream"]

_BAD_TOKEN = 498


class CohereUpstream:
    """POST {base}/chat for the provider of this name. `defaults` are raw fields sent where the request has none."""

    path = "/chat"

    def __init__(self, provider: str, *, defaults: Mapping[str, bytes] | None = None) -> None:
        self._provider = provider
        self._defaults = defaults or {}

    def render_request(self, request: Request) -> bytes:
        """Raises InvalidRequest for a conversation that the API would refuse, naming what is wrong."""
        body: dict[str, Any] = {
            "model": request.model,
            "messages": message_objects(request, self._provider),
            "stream": request.stream,
        }
        _add_tools(body, request)
        _add_sampling(body, request)
        _add_thinking(body, request)
        if request.output_format is not None and request.output_format.kind != "text":
            body["response_format"] = _response_format(request)
        add_missing(body, self._defaults)
        return orjson.dumps(body)

    def stream_parser(self, request: Request) -> SseAnswerParser:
        return stream_parser()

    def parse_body(self, request: Request, body: bytes) -> list[Event]:
        return parse_whole(body)

    def parse_error(self, status: int, body: bytes) -> GatewayError:
        kind = UpstreamAuth if status == _BAD_TOKEN else error_class_of(status)
        return upstream_failure(kind, told_in(body), status=status)


def _add_tools(body: dict[str, Any], request: Request) -> None:
    choice = request.tool_choice
    tools = allowed_tools(request)
    if choice is not None and choice.name is not None:  # the API has no word for one tool: only that one is declared
        tools = tuple([tool for tool in tools if tool.name == choice.name])
    if tools:
        body["tools"] = [{"type": "function", "function": function_object(tool)} for tool in tools]
        if any(tool.strict for tool in tools):
            body["strict_tools"] = True
    if choice is not None and tools and choice.mode in (REQUIRED, NONE):
        body["tool_choice"] = choice.mode.upper()


def _add_sampling(body: dict[str, Any], request: Request) -> None:
    sampling = request.sampling
    found = {
        "max_tokens": request.max_tokens,
        "temperature": sampling.temperature,
        "p": sampling.top_p,
        "k": sampling.top_k,
        "seed": sampling.seed,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "stop_sequences": sampling.stop or None,
        "priority": request.priority,
    }
    body.update({name: value for name, value in found.items() if value is not None})


def _add_thinking(body: dict[str, Any], request: Request) -> None:
    options = request.reasoning
    if options is None:
        return
    if options.effort == "none" or options.budget_tokens == 0:
        body["thinking"] = {"type": "disabled"}
    elif options.budget_tokens is not None:
        body["thinking"] = {"type": "enabled", "token_budget": options.budget_tokens}
    elif options.effort is not None:
        body["thinking"] = {"type": "enabled"}


def _response_format(request: Request) -> dict[str, Any]:
    wanted = request.output_format
    assert wanted is not None
    if wanted.kind == "json_object":
        return {"type": "json_object"}
    if wanted.kind == "json_schema" and wanted.schema is not None:
        return {"type": "json_object", "json_schema": orjson.Fragment(wanted.schema)}
    raise UnsupportedParameter.at("response_format", f"Cohere has no format {wanted.kind}")
