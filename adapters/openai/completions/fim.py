"""Mistral's way to fill in between a prompt and a suffix, both ways: asked as completions are, answered as chat is."""

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import Event
from adapters.canonical.request import Request
from adapters.openai.chat.render import ChatStreamRenderer
from adapters.openai.chat.result import render_chat_result
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.completions.parse import parse_completions
from adapters.openai.completions.upstream import CompletionsUpstream
from adapters.openai.errors import render_error
from adapters.openai.quirks import Quirks
from adapters.openai.request_fields import client_field
from adapters.openai.vocabulary import COMPLETION_FIELDS, COMPLETIONS, KEEPALIVE
from adapters.sse_answer import SseAnswerParser

__all__ = ["FimFront", "FimUpstream"]


class FimFront:
    """POST /v1/fim/completions."""

    dialect = COMPLETIONS
    id_prefix = "cmpl-"
    stream_content_type = "text/event-stream; charset=utf-8"
    keepalive = KEEPALIVE
    request_id_header = "x-request-id"
    forwarded_headers: tuple[str, ...] = ()

    parse = staticmethod(parse_completions)
    renderer = ChatStreamRenderer
    render_result = staticmethod(render_chat_result)
    render_error = staticmethod(render_error)

    def client_field(self, name: str) -> str:
        return client_field(name, COMPLETION_FIELDS)


class FimUpstream:
    """POST {base}/fim/completions."""

    path = "/fim/completions"

    def __init__(self, quirks: Quirks) -> None:
        self._asked = CompletionsUpstream(quirks)
        self._answered = ChatUpstream(quirks)

    def render_request(self, request: Request) -> bytes:
        return self._asked.render_request(request)

    def stream_parser(self, request: Request) -> SseAnswerParser:
        return self._answered.stream_parser(request)

    def parse_body(self, request: Request, body: bytes) -> list[Event]:
        return self._answered.parse_body(request, body)

    def parse_error(self, status: int, body: bytes) -> GatewayError:
        return self._answered.parse_error(status, body)
