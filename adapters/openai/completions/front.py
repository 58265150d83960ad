"""Legacy completions towards clients."""

from adapters.openai.completions.parse import parse_completions
from adapters.openai.completions.render import CompletionStreamRenderer, render_completion_result
from adapters.openai.errors import render_error
from adapters.openai.request_fields import client_field
from adapters.openai.vocabulary import COMPLETION_FIELDS, COMPLETIONS, KEEPALIVE

__all__ = ["CompletionsFront"]


class CompletionsFront:
    """POST /v1/completions."""

    dialect = COMPLETIONS
    id_prefix = "cmpl-"
    stream_content_type = "text/event-stream; charset=utf-8"
    keepalive = KEEPALIVE
    request_id_header = "x-request-id"
    forwarded_headers: tuple[str, ...] = ()

    parse = staticmethod(parse_completions)
    renderer = CompletionStreamRenderer
    render_result = staticmethod(render_completion_result)
    render_error = staticmethod(render_error)

    def client_field(self, name: str) -> str:
        return client_field(name, COMPLETION_FIELDS)
