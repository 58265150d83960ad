"""The smallest upstream dialect: for tests of HTTP that no vendor's words should disturb.

A stream is `data: some text` events and `data: END`; a body is `{"text": ...}`; an error is `{"error": ...}`.
"""

import json

from adapters.canonical.errors import (
    BadUpstreamResponse,
    GatewayError,
    InvalidRequest,
    StreamTruncated,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamQuota,
    UpstreamRateLimited,
)
from adapters.canonical.events import ChoiceFinished, Event, Started, TextDelta
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason
from adapters.sse import SseDecoder

_FINISH = ChoiceFinished(0, StopReason.STOP)
_CLASSES: dict[int, type[GatewayError]] = {
    400: InvalidRequest,
    402: UpstreamQuota,
    429: UpstreamRateLimited,
    503: UpstreamOverloaded,
}


def chunk(text: str) -> bytes:
    return b"data: " + text.encode() + b"\n\n"


END = chunk("END")


class TinyParser:
    def __init__(self) -> None:
        self._sse = SseDecoder()
        self._started = False
        self.finished = False
        self.failure: GatewayError | None = None

    def feed(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        for payload in self._sse.feed(data):
            if not self._started:
                self._started = True
                events.append(Started(id="tiny"))
            if payload == b"END":
                self.finished = True
                events.append(_FINISH)
            else:
                events.append(TextDelta(0, 0, payload.decode()))
        return events

    def close(self) -> list[Event]:
        if not self.finished:
            raise StreamTruncated("no END")
        return []


class TinyUpstream:
    path = "/tiny"

    def render_request(self, request: Request) -> bytes:
        return json.dumps({"model": request.model, "stream": request.stream}).encode()

    def stream_parser(self, request: Request) -> TinyParser:
        return TinyParser()

    def parse_body(self, request: Request, body: bytes) -> list[Event]:
        try:
            found = json.loads(body)
        except ValueError as error:
            raise BadUpstreamResponse("not JSON") from error
        if "error" in found:
            raise UpstreamOverloaded(found["error"])
        return [Started(id="tiny"), TextDelta(0, 0, found["text"]), _FINISH]

    def parse_error(self, status: int, body: bytes) -> GatewayError:
        kind = _CLASSES.get(status, UpstreamError)
        return kind(json.loads(body).get("error", f"status {status}"))
