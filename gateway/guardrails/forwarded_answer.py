"""The texts of an answer that passes through, filtered: a transcript, and what an image's model made of its prompt.

Bodies of JSON are held until they are whole; texts and streams of events pass as they come.
"""

import codecs
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import orjson

from adapters.canonical.errors import BadUpstreamResponse
from adapters.sse import SseDecoder, on_one_line
from gateway.fetching.whole_body import BodyTooLong, whole_body
from gateway.guardrails.chain import FilterChain

__all__ = ["filtered_json", "filtered_transcript", "whole"]

NewFilters = Callable[[], FilterChain]
_MAX_BYTES = 64 * 2**20
"""Of a body of JSON."""
_TEXTS = ("text", "revised_prompt")
_PIECES = ("segments", "words", "logprobs")
"""What tells a transcript once more, in pieces."""


def filtered_transcript(
    body: AsyncIterator[bytes], content_type: str, new_filters: NewFilters
) -> AsyncGenerator[bytes, None]:
    """In whichever form it comes. Raises ContentRefused, and BadUpstreamResponse for what cannot be read."""
    match content_type.partition(";")[0].strip().lower():
        case "application/json":
            return _whole(body, new_filters)
        case "text/event-stream":
            return _events(body, new_filters)
        case _:
            return _text(body, new_filters())


async def filtered_json(raw: bytes, new_filters: NewFilters) -> bytes:
    """The same of a body of JSON; as it came where no text in it is changed."""
    value = _loaded(raw)
    return orjson.dumps(value) if await _change(value, new_filters) else raw


async def whole(body: AsyncIterator[bytes]) -> bytes:
    """All of a body. Raises BadUpstreamResponse for one that is too long."""
    try:
        return await whole_body(body, _MAX_BYTES)
    except BodyTooLong as error:
        raise BadUpstreamResponse("the answer can't be read as a whole: it is too long") from error


async def _whole(body: AsyncIterator[bytes], new_filters: NewFilters) -> AsyncGenerator[bytes, None]:
    yield await filtered_json(await whole(body), new_filters)


async def _text(body: AsyncIterator[bytes], filters: FilterChain) -> AsyncGenerator[bytes, None]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        async for piece in body:
            if passed := await filters.feed(decoder.decode(piece)):
                yield passed.encode()
        if rest := await filters.whole(decoder.decode(b"", final=True)):
            yield rest.encode()
    except UnicodeDecodeError as error:
        raise BadUpstreamResponse("the transcript is not valid UTF-8") from error


async def _events(body: AsyncIterator[bytes], new_filters: NewFilters) -> AsyncGenerator[bytes, None]:
    decoder, transcript = SseDecoder(), _Transcript(new_filters)
    async for piece in body:
        frames = [await transcript.passed(data) for data in decoder.feed(piece)]
        if passed := b"".join(frames):
            yield passed
    frames = [await transcript.passed(data) for data in decoder.close()]
    if passed := b"".join([*frames, await transcript.rest()]):
        yield passed


class _Transcript:
    """One that is told in deltas, and then as a whole."""

    def __init__(self, new_filters: NewFilters) -> None:
        self._new_filters = new_filters
        self._filters = new_filters()
        self._last: dict[str, Any] = {}

    async def passed(self, data: bytes) -> bytes:
        """What is told in place of an event."""
        event = _loaded(data) if data.startswith(b"{") else None
        if not isinstance(event, dict):
            return b"data: " + on_one_line(data) + b"\n\n"
        delta = event.get("delta")
        if not isinstance(delta, str):
            before = await self.rest() if str(event.get("type")).endswith(".done") else b""
            changed = await _change(event, self._new_filters)
            return before + (_frame(event) if changed else b"data: " + on_one_line(data) + b"\n\n")
        self._last = {name: value for name, value in event.items() if name not in _PIECES}
        return self._delta(await self._filters.feed(delta))

    async def rest(self) -> bytes:
        """What is held back of the deltas."""
        ended, self._filters = self._filters, self._new_filters()
        return self._delta(await ended.finish())

    def _delta(self, text: str) -> bytes:
        return _frame({**self._last, "delta": text}) if text else b""


async def _change(value: Any, new_filters: NewFilters) -> bool:
    """Changes the texts in place. Gives whether any differs."""
    if isinstance(value, list):
        return any([await _change(each, new_filters) for each in value])
    if not isinstance(value, dict):
        return False
    texts = {name: value[name] for name in _TEXTS if isinstance(value.get(name), str)}
    told = {name: await new_filters().whole(text) for name, text in texts.items()}
    if told == texts:
        below = [each for name, each in value.items() if not (texts and name in _PIECES)]
        return any([await _change(each, new_filters) for each in below])
    value.update(told)
    for name in _PIECES:
        value.pop(name, None)
    return True


def _loaded(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadUpstreamResponse("the answer is no JSON that guardrails could look at") from error


def _frame(event: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(event) + b"\n\n"
