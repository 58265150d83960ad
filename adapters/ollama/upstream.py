"""Ollama's native API as an upstream: the path and the request body out, events and whole answers in."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from adapters import minted_ids
from adapters.call_ids import OwnIds
from adapters.canonical.errors import GatewayError, UnsupportedParameter
from adapters.canonical.events import Event
from adapters.canonical.messages import SYSTEM, Image, text_of
from adapters.canonical.request import Request
from adapters.ollama.answer import parse_whole, stream_parser
from adapters.ollama.durations import keep_alive_value
from adapters.ollama.errors import parse_error
from adapters.ollama.messages import image_data, message_objects
from adapters.ollama.options import format_value, options_object
from adapters.ollama.thinking import think_value
from adapters.ollama.tools import tool_objects
from adapters.ollama.vocabulary import CHAT, GENERATE
from adapters.sse_answer import SseAnswerParser

__all__ = ["OllamaUpstream"]

_NATIVE = (CHAT, GENERATE)
_CHAT_PATH = "/api/chat"
_GENERATE_PATH = "/api/generate"
_TOP = frozenset(("keep_alive", "think", "format", "truncate", "shift", "template"))
"""Fields of the body that may have a default; other defaults are options."""


class OllamaUpstream:
    """POST {base}/api/chat, or /api/generate for prompts without roles, for the provider of this name.

    `defaults` are raw fields sent where the request has none. `new_id` mints the ids of calls that come without one.
    """

    path = _CHAT_PATH

    def __init__(
        self,
        provider: str,
        *,
        defaults: Mapping[str, bytes] | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._provider = provider
        self._defaults = {name: raw for name, raw in (defaults or {}).items() if name in _TOP}
        self._options = {name: raw for name, raw in (defaults or {}).items() if name not in _TOP}
        self._new_id = new_id or minted_ids.new_id

    def path_of(self, request: Request) -> str:
        """A client of /api/generate gets exactly that, and so does a prompt that no template is to touch."""
        return _GENERATE_PATH if request.prompts is not None or request.dialect == GENERATE else _CHAT_PATH

    def render_request(self, request: Request) -> bytes:
        """Raises InvalidRequest for what the API has no words for, naming what is wrong."""
        extras = request.extras if request.dialect in _NATIVE else {}
        body: dict[str, Any] = {"model": request.model}
        if self.path_of(request) == _GENERATE_PATH:
            self._add_prompt(body, request)
        else:
            body["messages"] = message_objects(request, self._provider)
        body["stream"] = request.stream  # the API's default is to stream
        tools = tool_objects(request)
        if tools is not None:
            body["tools"] = tools
        think = think_value(request)
        if think is not None:
            body["think"] = think
        if request.output_format is not None:
            body["format"] = format_value(request.output_format)
        if request.logprobs is not None:
            body["logprobs"] = True
            if request.logprobs:
                body["top_logprobs"] = request.logprobs
        if request.keep_alive_s is not None:
            body["keep_alive"] = keep_alive_value(request.keep_alive_s)
        for name, raw in (*extras.items(), *self._defaults.items()):
            if "." not in name:
                body.setdefault(name, orjson.Fragment(raw))
        if request.dialect not in _NATIVE:  # a prompt that is too long is an error, and is not cut in silence
            body.setdefault("truncate", False)
            body.setdefault("shift", False)
        options = options_object(request, extras, self._options)
        if options:
            body["options"] = options
        return orjson.dumps(body)

    def _add_prompt(self, body: dict[str, Any], request: Request) -> None:
        if request.prompts is not None:
            (prompt,) = request.prompts
            if not isinstance(prompt, str):
                raise UnsupportedParameter.at("prompt", "Ollama takes text, not token ids")
            body["prompt"] = prompt
            if request.suffix is not None:
                body["suffix"] = request.suffix
            else:
                body["raw"] = True
            return
        for message in request.messages or ():
            text = text_of(message.parts)
            body["system" if message.role == SYSTEM else "prompt"] = text
            images = [image_data(part) for part in message.parts if isinstance(part, Image)]
            if images:
                body["images"] = images

    def stream_parser(self, request: Request) -> SseAnswerParser:
        return stream_parser(OwnIds(self._new_id, request.messages))

    def parse_body(self, request: Request, body: bytes) -> list[Event]:
        return parse_whole(body, OwnIds(self._new_id, request.messages))

    def parse_error(self, status: int, body: bytes) -> GatewayError:
        return parse_error(status, body)
