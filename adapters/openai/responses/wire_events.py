"""One event of a response's stream: numbered, named, as bytes; and how it is framed.

The Open Responses specification names the events of raw reasoning otherwise and nests the error of an `error` event;
everything else is one dialect.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from msgspec import Struct

from adapters.canonical.errors import GatewayError
from adapters.openai.errors import error_object

__all__ = ["Form", "OPENAI_FORM", "OPEN_RESPONSES_FORM", "ResponseEvent", "error_event", "frames"]


class Form(NamedTuple):
    """What the two dialects spell differently."""

    name: str
    reasoning_delta: str
    reasoning_done: str
    nests_errors: bool


OPENAI_FORM = Form("openai", "response.reasoning_text.delta", "response.reasoning_text.done", nests_errors=False)
OPEN_RESPONSES_FORM = Form("open_responses", "response.reasoning.delta", "response.reasoning.done", nests_errors=True)


class ResponseEvent(Struct, frozen=True, gc=False):
    """`data` is the whole JSON object on one line, which says its type and number as well."""

    sequence_number: int
    name: str
    data: bytes


@lru_cache(maxsize=256)
def _frame_head(name: str) -> bytes:
    return b"event: %b\ndata: " % name.encode()


def frames(events: list[ResponseEvent]) -> bytes:
    """The events as server-sent events."""
    return b"".join([b"%b%b\n\n" % (_frame_head(event.name), event.data) for event in events])


def error_event(error: GatewayError, sequence_number: int, form: Form) -> ResponseEvent:
    """For a reader whose stream ends although the response itself did not fail."""
    told: dict[str, Any] = error_object(error)
    if form.nests_errors:
        body = {"type": "error", "sequence_number": sequence_number, "error": told}
    else:
        body = {
            "type": "error",
            "sequence_number": sequence_number,
            "code": told["code"],
            "message": told["message"],
            "param": told["param"],
        }
    return ResponseEvent(sequence_number, "error", orjson.dumps(body))
