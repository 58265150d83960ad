"""Both sides of OpenAI's dialect around one request, as the tests here use them."""

import json
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import Event
from adapters.canonical.request import Request
from adapters.canonical.result import fold
from adapters.front import AnswerHead, Front, StreamRenderer
from adapters.openai.chat.front import ChatFront
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.completions.front import CompletionsFront
from adapters.openai.completions.upstream import CompletionsUpstream
from adapters.upstream import Upstream

__all__ = ["HEAD", "Exchange", "chat", "chunks_of", "completion", "sse"]

HEAD = AnswerHead("chatcmpl-gateway", 1790000001, "public-name")
DONE = b"data: [DONE]\n\n"


class Exchange:
    """One request, and what its front and its upstream make of an answer. Minted call ids count from call_1."""

    def __init__(self, body: bytes) -> None:
        ids = count(1)
        self.front: Front
        self.upstream: Upstream
        if b'"messages"' in body:
            self.front, self.upstream = ChatFront(), ChatUpstream(new_id=lambda: f"call_{next(ids)}")
        else:
            self.front, self.upstream = CompletionsFront(), CompletionsUpstream()
        self.request: Request = self.front.parse(body, max_depth=64)

    def sent(self) -> dict[str, Any]:
        """The body that the upstream gets."""
        found: dict[str, Any] = json.loads(self.upstream.render_request(self.request), parse_constant=_refuse)
        return found

    def read_stream(self, *pieces: bytes) -> tuple[list[Event], GatewayError | None]:
        """The events of a stream that comes in these pieces, and the error that ends it."""
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
        return self.front.renderer(self.request, HEAD)

    def stream(self, events: Sequence[Event], error: GatewayError | None = None) -> bytes:
        """What the client reads."""
        renderer = self.renderer()
        return renderer.feed(events) + (renderer.finish() if error is None else renderer.fail(error))

    def answer(self, events: Iterable[Event]) -> bytes:
        return self.front.render_result(self.request, fold(events), HEAD)


def chat(**fields: Any) -> Exchange:
    """An exchange for a chat body with these fields set or replaced."""
    return Exchange(json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}).encode())


def completion(**fields: Any) -> Exchange:
    return Exchange(json.dumps({"model": "m", "prompt": "hi", **fields}).encode())


def sse(*chunks: Any) -> bytes:
    """A stream of these chunks, without an end."""
    return b"".join([b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks])


def chunks_of(frames: bytes) -> list[dict[str, Any]]:
    """The JSON of each frame, which must end in [DONE]."""
    blocks = frames.split(b"\n\n")
    assert blocks[-2:] == [b"data: [DONE]", b""]
    assert all(block.startswith(b"data: {") for block in blocks[:-2])
    return [json.loads(block[6:], parse_constant=_refuse) for block in blocks[:-2]]


def _refuse(word: str) -> Any:
    raise AssertionError(f"{word} is not JSON")
