"""A client's request, and what a front and an upstream make of it and of its answer, for the tests of every dialect."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import Event
from adapters.canonical.result import fold
from adapters.front import AnswerHead, Front, StreamRenderer
from adapters.upstream import Upstream

__all__ = ["Sides", "refuse_constant"]


class Sides:
    """Both sides of one request."""

    minted = 0
    """How many call ids `mint` has numbered since a stream began."""

    def __init__(self, front: Front, upstream: Upstream, head: AnswerHead, body: bytes) -> None:
        self.front = front
        self.upstream = upstream
        self.head = head
        self.request = front.parse(body, max_depth=64)

    def sent(self) -> dict[str, Any]:
        """The body that the upstream gets."""
        found: dict[str, Any] = json.loads(self.upstream.render_request(self.request), parse_constant=refuse_constant)
        return found

    def mint(self) -> int:
        self.minted += 1
        return self.minted

    def read_stream(self, *pieces: bytes) -> tuple[list[Event], GatewayError | None]:
        """The events of a stream that comes in these pieces, and the error that ends it."""
        self.minted = 0
        parser = self.upstream.stream_parser(self.request)
        events: list[Event] = []
        try:
            for piece in pieces:
                events += parser.feed(piece)
                if parser.failure is not None:
                    return events, parser.failure
            events += parser.close()
        except GatewayError as error:
            return events, error
        return events, None

    def read_body(self, body: bytes) -> tuple[list[Event], GatewayError | None]:
        try:
            return self.upstream.parse_body(self.request, body), None
        except GatewayError as error:
            return [], error

    def renderer(self) -> StreamRenderer:
        return self.front.renderer(self.request, self.head)

    def stream(self, events: Sequence[Event], error: GatewayError | None = None) -> bytes:
        """What the client reads."""
        renderer = self.renderer()
        return renderer.feed(events) + (renderer.finish() if error is None else renderer.fail(error))

    def answer(self, events: Iterable[Event]) -> bytes:
        return self.front.render_result(self.request, fold(events), self.head)


def refuse_constant(word: str) -> Any:
    """For json.loads: NaN and its kin are no JSON."""
    raise AssertionError(f"{word} is no JSON")
