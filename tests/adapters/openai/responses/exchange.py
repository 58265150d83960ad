"""Both sides of the Responses API around one request, as the tests here use them. Seals have no randomness here."""

import json
from typing import Any

from adapters.front import AnswerHead, Front
from adapters.openai.chat.front import ChatFront
from adapters.openai.responses.front import ResponsesFront
from adapters.openai.responses.sealing import Sealer
from adapters.openai.responses.upstream import ResponsesUpstream
from adapters.openai.responses.wire_events import OPENAI_FORM, Form
from tests.adapters.sides import Sides

__all__ = ["HEAD", "PROVIDER", "Exchange", "front_of", "responses", "sse"]

HEAD = AnswerHead("resp_gateway", 1790000001, "public-name")
PROVIDER = "up"
_END = 1790000009.5


def front_of(form: Form = OPENAI_FORM, owner: str = "ann") -> ResponsesFront:
    return ResponsesFront(Sealer("k1", b"secret", bytes), lambda: _END, form=form, owner=owner)


class Exchange(Sides):
    """`front` is chat's for a body with messages."""

    def __init__(self, body: bytes, front: Front | None = None) -> None:
        if front is None:
            front = ChatFront() if "messages" in json.loads(body) else front_of()
        super().__init__(front, ResponsesUpstream(PROVIDER), HEAD, body)


def responses(form: Form = OPENAI_FORM, **fields: Any) -> Exchange:
    """An exchange for a body with these fields set or replaced."""
    return Exchange(json.dumps({"model": "m", "input": "hi", **fields}).encode(), front_of(form))


def sse(*events: dict[str, Any]) -> bytes:
    """A stream of these events, numbered."""
    return b"".join(
        [
            b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps({**e, "sequence_number": i}).encode())
            for i, e in enumerate(events)
        ]
    )
