"""The Messages API towards clients."""

from adapters.anthropic.errors import render_error
from adapters.anthropic.model_list import AnthropicModelList
from adapters.anthropic.parse import parse_count, parse_messages
from adapters.anthropic.render import MessagesStreamRenderer, render_messages_result
from adapters.anthropic.vocabulary import MESSAGES, PING, SPELLINGS

__all__ = ["MessagesFront"]


class MessagesFront(AnthropicModelList):
    """POST /v1/messages and /v1/messages/count_tokens, and the list of models."""

    dialect = MESSAGES
    id_prefix = "msg_"
    stream_content_type = "text/event-stream; charset=utf-8"
    keepalive = PING
    request_id_header = "request-id"
    forwarded_headers: tuple[str, ...] = ("anthropic-beta",)

    parse = staticmethod(parse_messages)
    parse_count = staticmethod(parse_count)
    renderer = MessagesStreamRenderer
    render_result = staticmethod(render_messages_result)
    render_error = staticmethod(render_error)

    def render_count(self, tokens: int) -> bytes:
        return b'{"input_tokens":%d}' % tokens

    def client_field(self, name: str) -> str:
        return SPELLINGS.get(name, name)
