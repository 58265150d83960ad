"""Ollama's error object, both ways: `{"error": "..."}`. The HTTP status tells what it is, inside a 200 nothing does."""

from typing import Any

import orjson

from adapters.canonical.errors import GatewayError
from adapters.error_words import told_in, words_of
from adapters.upstream_errors import error_class_of, upstream_failure

__all__ = ["error_from_text", "parse_error", "render_error"]


def render_error(error: GatewayError) -> bytes:
    """The JSON body of an error answer, and the last line of a stream that fails. `param`, `code` are additions."""
    found: dict[str, Any] = {"error": error.message}
    if error.param is not None:
        found["param"] = error.param
    if error.code is not None:
        found["code"] = error.code
    return orjson.dumps(found)


def parse_error(status: int, body: bytes) -> GatewayError:
    """The error that an upstream answered with this HTTP status and JSON body."""
    return upstream_failure(error_class_of(status), told_in(body), status=status)


def error_from_text(found: object) -> GatewayError:
    """The error that came inside a 200."""
    return upstream_failure(error_class_of(None), words_of(found), status=None)
