"""The events of one response as they leave: each with its type and its number."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from adapters.openai.responses.wire_events import ResponseEvent
from adapters.sse import on_one_line

__all__ = ["EventLog"]


class EventLog:
    """Numbers the events of one response."""

    __slots__ = ("number", "out")

    def __init__(self) -> None:
        self.number = 0
        """Of the next event."""
        self.out: list[ResponseEvent] = []

    def say(self, name: str, fields: Mapping[str, Any]) -> None:
        self.say_raw(name, on_one_line(orjson.dumps(fields))[1:])

    def say_raw(self, name: str, rest: bytes) -> None:
        """`rest` is what stands in the object behind its type and number, its closing brace included, on one line."""
        number = self.number
        self.number = number + 1
        self.out.append(ResponseEvent(number, name, b"%b%d,%b" % (_event_head(name), number, rest)))

    def take(self) -> list[ResponseEvent]:
        out, self.out = self.out, []
        return out


@lru_cache(maxsize=256)  # upstreams name events of their own as well
def _event_head(name: str) -> bytes:
    return b'{"type":%b,"sequence_number":' % orjson.dumps(name)
