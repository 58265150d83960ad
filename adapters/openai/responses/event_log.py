"""The events of one response as they leave: each with its type and its number."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

import orjson

from adapters.openai.responses.vocabulary import ITEM_ADDED, ITEM_DONE
from adapters.openai.responses.wire_events import ResponseEvent
from adapters.sse import on_one_line

__all__ = ["EventLog", "Unheard"]

_TEXT_DELTA = b'{"type":"response.output_text.delta","sequence_number":%d,%b,"delta":%b,"logprobs":[]}'


class _Item(Protocol):
    index: int

    def render(self, status: str) -> bytes: ...


class EventLog:
    """Numbers the events of one response."""

    __slots__ = ("number", "out")

    def __init__(self) -> None:
        self.number = 0
        """Of the next event."""
        self.out: list[ResponseEvent] = []

    def say(self, name: str, fields: Mapping[str, Any]) -> None:
        self.say_raw(name, on_one_line(orjson.dumps(fields))[1:])

    def say_response(self, snapshot: Callable[[], bytes], *names: str) -> None:
        """Events that show the whole response as it is now."""
        response = {"response": orjson.Fragment(snapshot())}
        for name in names:
            self.say(name, response)

    def begin_item(self, item: _Item) -> None:
        self._say_item(ITEM_ADDED, item, "in_progress")

    def end_item(self, item: _Item, status: str) -> None:
        self._say_item(ITEM_DONE, item, status)

    def _say_item(self, name: str, item: _Item, status: str) -> None:
        self.say(name, {"output_index": item.index, "item": orjson.Fragment(item.render(status))})

    def say_raw(self, name: str, rest: bytes) -> None:
        """`rest` is what stands in the object behind its type and number, its closing brace included, on one line."""
        number = self.number
        self.number = number + 1
        self.out.append(ResponseEvent(number, name, b"%b%d,%b" % (_event_head(name), number, rest)))

    def say_delta(self, name: str, place: bytes, text: str) -> None:
        """A piece of text. `place` says whose it is, as fields."""
        self.say_raw(name, b'%b,"delta":%b}' % (place, orjson.dumps(text)))

    def say_text(self, place: bytes, text: str) -> None:
        """A piece of a message's text, which nearly all events are. `place` says whose it is, as fields."""
        number = self.number
        self.number = number + 1
        data = _TEXT_DELTA % (number, place, orjson.dumps(text))
        self.out.append(ResponseEvent(number, "response.output_text.delta", data))

    def take(self) -> list[ResponseEvent]:
        out, self.out = self.out, []
        return out


class Unheard(EventLog):
    """Of a response that does not stream: it has no events, and nothing is rendered for them."""

    def say(self, name: str, fields: Mapping[str, Any]) -> None:
        pass

    def say_response(self, snapshot: Callable[[], bytes], *names: str) -> None:
        pass

    def say_raw(self, name: str, rest: bytes) -> None:
        pass

    def say_delta(self, name: str, place: bytes, text: str) -> None:
        pass

    def say_text(self, place: bytes, text: str) -> None:
        pass

    def _say_item(self, name: str, item: _Item, status: str) -> None:
        pass


@lru_cache(maxsize=256)  # upstreams name events of their own as well
def _event_head(name: str) -> bytes:
    return b'{"type":%b,"sequence_number":' % orjson.dumps(name)
