"""generateContent as an upstream: the path and the request body out, events and whole answers in."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from adapters import minted_ids
from adapters.canonical.errors import GatewayError, UnsupportedParameter
from adapters.canonical.events import Event
from adapters.canonical.request import Request
from adapters.gemini.answer import parse_whole, stream_parser
from adapters.gemini.continuation import CONTINUATION_TOKEN
from adapters.gemini.errors import parse_error
from adapters.gemini.generation_config import CONFIG, config_object
from adapters.gemini.model_names import model_address, model_resource
from adapters.gemini.tools import tool_config_object, tool_objects
from adapters.gemini.turns import contents_of
from adapters.gemini.vocabulary import GEMINI
from adapters.raw_json import add_missing
from adapters.sse_answer import SseAnswerParser

__all__ = ["GenerateUpstream"]

_TIERS = {"default": "standard", "flex": "flex", "priority": "priority", "auto": None}
_TOP = frozenset(("safetySettings", "cachedContent", "labels", "serviceTier", "toolConfig", "store"))
"""Fields of the body that may have a default; other defaults belong to its config."""


class GenerateUpstream:
    """POST {base}/models/{model}:generateContent for the provider of this name; signatures of others stay away from it.

    `defaults` are raw fields sent where the request has none. `new_id` mints the ids of calls that come without one.
    """

    path = "/models"

    def __init__(
        self,
        provider: str,
        *,
        defaults: Mapping[str, bytes] | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._provider = provider
        self._defaults = {name: raw for name, raw in (defaults or {}).items() if name in _TOP}
        self._config = {name: raw for name, raw in (defaults or {}).items() if name not in _TOP}
        self._new_id = new_id or minted_ids.new_id

    def path_of(self, request: Request) -> str:
        """The path of an answer to this request, with its query. Raises ModelNotFound."""
        place = model_address(request.model)
        return f"{place}:streamGenerateContent?alt=sse" if request.stream else f"{place}:generateContent"

    def count_path_of(self, request: Request) -> str:
        """Raises ModelNotFound."""
        return f"{model_address(request.model)}:countTokens"

    def render_request(self, request: Request) -> bytes:
        """Raises InvalidRequest for a conversation that the API would refuse, naming what is wrong."""
        body = self._prompt(request)
        config = config_object(request, self._config)
        if config:
            body[CONFIG] = config
        if request.service_tier is not None:
            if request.service_tier not in _TIERS:
                raise UnsupportedParameter.at("service_tier", f"Gemini has no tier {request.service_tier}")
            tier = _TIERS[request.service_tier]
            if tier is not None:
                body["serviceTier"] = tier
        if request.store is not None:
            body["store"] = request.store
        add_missing(body, self._defaults)
        if CONTINUATION_TOKEN in request.extras:
            body[CONTINUATION_TOKEN] = orjson.Fragment(request.extras[CONTINUATION_TOKEN])
        return orjson.dumps(body)

    def render_count(self, request: Request, *, wrapped: bool) -> bytes:
        """The same without what is not counted. `wrapped`: as AI Studio wants it, with the model inside."""
        body = self._prompt(request)
        if wrapped:
            body = {"generateContentRequest": {"model": model_resource(request.model), **body}}
        return orjson.dumps(body)

    def _prompt(self, request: Request) -> dict[str, Any]:
        system, contents = contents_of(request, self._provider)
        body: dict[str, Any] = {"contents": contents}
        if system:
            body["systemInstruction"] = {"parts": system}
        tools = tool_objects(request)
        if tools is not None:
            body["tools"] = tools
        choice = tool_config_object(request)
        if choice is not None:
            body["toolConfig"] = choice
        if request.dialect == GEMINI:
            for name, raw in request.extras.items():
                if "." not in name:
                    body.setdefault(name, orjson.Fragment(raw))
        return body

    def stream_parser(self, request: Request) -> SseAnswerParser:
        return stream_parser(request, self._provider, self._new_id)

    def parse_body(self, request: Request, body: bytes) -> list[Event]:
        return parse_whole(request, self._provider, body, self._new_id)

    def parse_error(self, status: int, body: bytes) -> GatewayError:
        return parse_error(status, body)
