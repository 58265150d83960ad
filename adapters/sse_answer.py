"""The frame around a streamed answer, the same in every dialect: bytes in, events out, and how it may end."""

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from adapters.canonical.errors import BadUpstreamResponse, GatewayError, StreamTruncated
from adapters.canonical.events import Event
from adapters.repeated import Repetition
from adapters.sse import SseDecoder
from adapters.upstream_json import UNREADABLE, unexpected_answer

__all__ = ["FrameDecoder", "SseAnswer", "SseAnswerParser", "whole_answer"]


class FrameDecoder(Protocol):
    """Bytes to the payload of each frame: of server-sent events, or of lines."""

    def feed(self, data: bytes) -> list[bytes]: ...

    def close(self) -> list[bytes]:
        """The payload of an unterminated last frame, if there is one."""
        ...


class SseAnswer(Protocol):
    """The state of one answer, in a dialect's words."""

    @property
    def complete(self) -> bool:
        """Whether the upstream's own finish marker came."""
        ...

    def feed(self, payload: bytes, out: list[Event]) -> None:
        """One frame. May raise what decoders do (`UNREADABLE`) for what is not of the dialect."""
        ...

    def finish(self, out: list[Event]) -> None:
        """At a clean end of the body. Raises StreamTruncated where the answer is not complete (law 3)."""
        ...


class SseAnswerParser:
    """The events of one streamed answer, from bytes cut anywhere (`adapters.upstream.StreamParser`).

    `end` is the data of an event that only marks the end of the stream; None: the dialect has none. `frames` takes the
    place of server-sent events. `text_field` finds the text in a frame of nothing else (`adapters.repeated`); None: two
    frames of the dialect never differ in their texts alone.
    """

    def __init__(
        self,
        answer: SseAnswer,
        *,
        end: bytes | None = None,
        frames: FrameDecoder | None = None,
        text_field: re.Pattern[bytes] | None = None,
    ) -> None:
        self._frames: FrameDecoder = frames or SseDecoder()
        self._answer = answer
        self._end = end
        self._repetition = None if text_field is None else Repetition(text_field)
        self.failure: GatewayError | None = None

    @property
    def finished(self) -> bool:
        return self._answer.complete

    def feed(self, data: bytes) -> list[Event]:
        out: list[Event] = []
        repetition = self._repetition
        try:
            payloads = self._frames.feed(data)
            place = 0
            while place < len(payloads):
                if repetition is not None:
                    place = repetition.read(payloads, place, out)
                    if place == len(payloads):
                        break
                payload = payloads[place]
                place += 1
                if payload != self._end:
                    known = len(out)
                    _read(self._answer.feed, payload, out)
                    if repetition is not None and len(out) == known + 1:
                        repetition.learn(payload, out[-1])
        except GatewayError as error:
            if not out:
                raise
            self.failure = error  # after the events that came with it
        return out

    def close(self) -> Sequence[Event]:
        """An event that the stream's end cut off counts if it parses."""
        out: list[Event] = []
        for payload in self._frames.close():
            if payload != self._end:
                try:
                    _read(self._answer.feed, payload, out)
                except BadUpstreamResponse as error:
                    if not self._answer.complete:
                        raise StreamTruncated("the upstream's stream ended inside an event") from error
        self._answer.finish(out)
        return out


def whole_answer(read: Callable[[bytes, list[Event]], None], body: bytes) -> list[Event]:
    """The events that `read` makes of a body that was not streamed."""
    out: list[Event] = []
    _read(read, body, out)
    return out


def _read(read: Callable[[bytes, list[Event]], None], payload: bytes, out: list[Event]) -> None:
    """Raises BadUpstreamResponse for what can't be read."""
    try:
        if not payload.isascii():
            str(payload, "utf-8")  # decoders do not look into what they pass over or keep raw
        read(payload, out)
    except UNREADABLE as error:
        raise unexpected_answer(error) from error
