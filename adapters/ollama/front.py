"""Ollama's native API towards clients: chat, generation, and what is asked about models."""

from adapters.canonical.errors import InvalidRequest
from adapters.field_types import TEXT
from adapters.json_fields import parse_object
from adapters.ollama.errors import render_error
from adapters.ollama.parse import parse_chat, parse_generate
from adapters.ollama.render import OllamaStreamRenderer, render_ollama_result
from adapters.ollama.vocabulary import API_VERSION, CHAT, GENERATE, SPELLINGS

__all__ = ["VERSION_BODY", "OllamaChatFront", "OllamaGenerateFront", "parse_show"]

VERSION_BODY = b'{"version":"%b"}' % API_VERSION.encode()


class _OllamaFront:
    """What both paths share."""

    id_prefix = ""
    stream_content_type = "application/x-ndjson"
    keepalive = b" "
    """Before a line, which JSON allows; clients read an empty line as a broken one."""
    request_id_header = "x-request-id"
    forwarded_headers: tuple[str, ...] = ()

    renderer = OllamaStreamRenderer
    render_result = staticmethod(render_ollama_result)
    render_error = staticmethod(render_error)

    def client_field(self, name: str) -> str:
        return SPELLINGS.get(name, name)


class OllamaChatFront(_OllamaFront):
    """POST /api/chat."""

    dialect = CHAT
    parse = staticmethod(parse_chat)


class OllamaGenerateFront(_OllamaFront):
    """POST /api/generate."""

    dialect = GENERATE
    parse = staticmethod(parse_generate)


def parse_show(body: bytes, *, max_depth: int) -> str:
    """The model that POST /api/show asks about. Raises InvalidRequest."""
    fields = parse_object(body, max_depth=max_depth)
    name = fields.take("model", TEXT) or fields.take("name", TEXT)
    if not name:
        raise InvalidRequest.at("model", "this field is required")
    return name
