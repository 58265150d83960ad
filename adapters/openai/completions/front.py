"""Legacy completions towards clients."""

from adapters.canonical.errors import GatewayError
from adapters.canonical.request import Request
from adapters.canonical.result import Result
from adapters.front import AnswerHead
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

    def parse(self, body: bytes, *, max_depth: int) -> Request:
        return parse_completions(body, max_depth=max_depth)

    def renderer(self, request: Request, head: AnswerHead) -> CompletionStreamRenderer:
        return CompletionStreamRenderer(request, head)

    def render_result(self, request: Request, result: Result, head: AnswerHead) -> bytes:
        return render_completion_result(request, result, head)

    def render_error(self, error: GatewayError) -> bytes:
        return render_error(error)

    def client_field(self, name: str) -> str:
        return client_field(name, COMPLETION_FIELDS)
