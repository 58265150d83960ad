"""The endpoints of llama.cpp's server that editors and chat programs call beside OpenAI's."""

from adapters.llamacpp.parse import parse_completion, parse_infill
from adapters.llamacpp.render import LlamaCppStreamRenderer, render_llamacpp_result
from adapters.llamacpp.vocabulary import FIELDS, LLAMACPP, SPELLINGS
from adapters.openai.errors import render_error
from adapters.openai.vocabulary import KEEPALIVE

__all__ = ["CompletionFront", "InfillFront"]


class CompletionFront:
    """POST /completion."""

    dialect = LLAMACPP
    id_prefix = ""
    stream_content_type = "text/event-stream; charset=utf-8"
    keepalive = KEEPALIVE
    request_id_header = "x-request-id"
    forwarded_headers: tuple[str, ...] = ()

    parse = staticmethod(parse_completion)
    renderer = LlamaCppStreamRenderer
    render_result = staticmethod(render_llamacpp_result)
    render_error = staticmethod(render_error)

    def client_field(self, name: str) -> str:
        field = FIELDS.by_name.get(name)
        return field.wire if field is not None else SPELLINGS.get(name, name)


class InfillFront(CompletionFront):
    """POST /infill."""

    parse = staticmethod(parse_infill)

    def client_field(self, name: str) -> str:
        return "input_prefix" if name == "prompts" else super().client_field(name)
