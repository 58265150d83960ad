"""Chat completions towards clients."""

from adapters.canonical.errors import GatewayError
from adapters.canonical.request import Request
from adapters.canonical.result import Result
from adapters.front import AnswerHead
from adapters.openai.chat.parse import parse_chat
from adapters.openai.chat.render import ChatStreamRenderer
from adapters.openai.chat.result import render_chat_result
from adapters.openai.errors import render_error
from adapters.openai.request_fields import client_field
from adapters.openai.vocabulary import CHAT, CHAT_FIELDS, KEEPALIVE

__all__ = ["ChatFront"]


class ChatFront:
    """POST /v1/chat/completions."""

    dialect = CHAT
    id_prefix = "chatcmpl-"
    stream_content_type = "text/event-stream; charset=utf-8"
    keepalive = KEEPALIVE
    request_id_header = "x-request-id"
    forwarded_headers: tuple[str, ...] = ()

    def parse(self, body: bytes, *, max_depth: int) -> Request:
        return parse_chat(body, max_depth=max_depth)

    def renderer(self, request: Request, head: AnswerHead) -> ChatStreamRenderer:
        return ChatStreamRenderer(request, head)

    def render_result(self, request: Request, result: Result, head: AnswerHead) -> bytes:
        return render_chat_result(request, result, head)

    def render_error(self, error: GatewayError) -> bytes:
        return render_error(error)

    def client_field(self, name: str) -> str:
        return client_field(name, CHAT_FIELDS)
