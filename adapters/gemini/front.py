"""generateContent towards clients: an object for each way to ask for an answer."""

from adapters.canonical.request import Request
from adapters.front import AnswerHead
from adapters.gemini.errors import render_error
from adapters.gemini.model_list import GeminiModelList
from adapters.gemini.parse import parse_count, parse_generate
from adapters.gemini.render import GenerateStreamRenderer, render_generate_result
from adapters.gemini.vocabulary import GEMINI, SPELLINGS

__all__ = ["GenerateFront"]


class GenerateFront(GeminiModelList):
    """POST /v1beta/models/{model}:generateContent and its kin, and the list of models.

    `stream`: the path asks for a stream; `sse`: as server-sent events, else as one JSON array. The path names the
    model, which the request lacks until somebody sets it.
    """

    dialect = GEMINI
    id_prefix = ""
    request_id_header = "x-request-id"
    forwarded_headers: tuple[str, ...] = ()

    parse_count = staticmethod(parse_count)
    render_result = staticmethod(render_generate_result)
    render_error = staticmethod(render_error)

    def __init__(self, *, stream: bool = False, sse: bool = False) -> None:
        self._stream = stream
        self._sse = sse
        self.stream_content_type = "text/event-stream" if sse else "application/json; charset=utf-8"
        self.keepalive = b": keepalive\n\n" if sse else b"\n"

    def parse(self, body: bytes, *, max_depth: int) -> Request:
        return parse_generate(body, max_depth=max_depth, stream=self._stream)

    def renderer(self, request: Request, head: AnswerHead) -> GenerateStreamRenderer:
        return GenerateStreamRenderer(request, head, sse=self._sse)

    def render_count(self, tokens: int) -> bytes:
        return b'{"totalTokens":%d}' % tokens

    def client_field(self, name: str) -> str:
        return SPELLINGS.get(name, name)
