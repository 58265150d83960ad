"""Chat completions towards clients."""

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

    parse = staticmethod(parse_chat)
    renderer = ChatStreamRenderer
    render_result = staticmethod(render_chat_result)
    render_error = staticmethod(render_error)

    def client_field(self, name: str) -> str:
        return client_field(name, CHAT_FIELDS)
