"""The Messages API towards clients."""

from adapters.anthropic.errors import render_error
from adapters.anthropic.model_list import AnthropicModelList
from adapters.anthropic.parse import parse_count, parse_messages
from adapters.anthropic.render import MessagesStreamRenderer, render_messages_result
from adapters.anthropic.vocabulary import MESSAGES, PING, SPELLINGS
from adapters.canonical.errors import GatewayError
from adapters.canonical.request import Request
from adapters.canonical.result import Result
from adapters.front import AnswerHead

__all__ = ["MessagesFront"]


class MessagesFront(AnthropicModelList):
    """POST /v1/messages and /v1/messages/count_tokens, and the list of models."""

    dialect = MESSAGES
    id_prefix = "msg_"
    stream_content_type = "text/event-stream; charset=utf-8"
    keepalive = PING
    request_id_header = "request-id"
    forwarded_headers: tuple[str, ...] = ("anthropic-beta",)

    def parse(self, body: bytes, *, max_depth: int) -> Request:
        return parse_messages(body, max_depth=max_depth)

    def parse_count(self, body: bytes, *, max_depth: int) -> Request:
        """The request whose prompt is to be counted."""
        return parse_count(body, max_depth=max_depth)

    def renderer(self, request: Request, head: AnswerHead) -> MessagesStreamRenderer:
        return MessagesStreamRenderer(request, head)

    def render_result(self, request: Request, result: Result, head: AnswerHead) -> bytes:
        return render_messages_result(request, result, head)

    def render_count(self, tokens: int) -> bytes:
        return b'{"input_tokens":%d}' % tokens

    def render_error(self, error: GatewayError) -> bytes:
        return render_error(error)

    def client_field(self, name: str) -> str:
        return SPELLINGS.get(name, name)
