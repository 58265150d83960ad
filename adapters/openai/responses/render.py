"""A response towards the client: its events as frames, or the whole object.

There is one way to the object: a whole answer is the same response, made of the same events, each part in one piece.
"""

from collections.abc import Iterator, Sequence

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import (
    AnnotationAdded,
    Event,
    HostedToolEvent,
    MediaDelta,
    PartReported,
    ProviderReported,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import Image, Opaque, Part, ProviderData, Reasoning, Refusal, Text, ToolCall
from adapters.canonical.result import Choice, Result
from adapters.canonical.usage import TokenLogprob
from adapters.openai.responses.live import LiveResponse
from adapters.openai.responses.wire_events import frames
from adapters.openai.vocabulary import DONE

__all__ = ["ResponseStreamRenderer", "render_response_result", "replayed"]


class ResponseStreamRenderer:
    """The frames of a response that is streamed to the client who asked for it."""

    def __init__(self, response: LiveResponse) -> None:
        self._response = response

    def feed(self, events: Sequence[Event]) -> bytes:
        return frames(self._response.feed(events))

    def finish(self) -> bytes:
        return frames(self._response.finish()) + DONE

    def fail(self, error: GatewayError) -> bytes:
        events = self._response.fail(error) or [self._response.lose(error)]
        return frames(events) + DONE


def render_response_result(response: LiveResponse, result: Result) -> bytes:
    """The whole object. The response is one that has not begun."""
    response.feed(list(replayed(result)))
    response.finish()
    return response.snapshot()


def replayed(result: Result) -> Iterator[Event]:
    """Events that fold to this result."""
    choice = result.choices[0]
    yield from result.prompts
    if result.provider_fields and result.provider_origin is not None:
        yield ProviderReported(result.provider_fields, result.provider_origin)
    texts = _text_logprobs(choice)
    token_ids, thought_logprobs = choice.token_ids, choice.reasoning_logprobs
    for number, part in enumerate(choice.parts):
        data = part.provider_data
        match part:
            case Text():
                yield from _reported(number, data)
                yield TextDelta(0, number, part.text, next(texts, ()), token_ids)
                token_ids = ()
                citations = part.citations
                for note in part.annotations or ((b"",) if citations else ()):
                    yield AnnotationAdded(0, number, note, part.annotated_by or "", citations)
                    citations = ()
            case Refusal():
                yield from _reported(number, data)
                yield RefusalDelta(0, number, part.text)
            case Reasoning():
                if part.text or thought_logprobs:
                    yield ReasoningDelta(0, number, part.text, False, thought_logprobs, token_ids)
                    token_ids, thought_logprobs = (), ()
                for piece, text in enumerate(part.summary):
                    yield ReasoningDelta(0, number, text, summary=True, piece=piece)
                yield ReasoningFinished(0, number, part.signature, part.encrypted, part.origin, data)
            case ToolCall():
                yield ToolCallStarted(0, number, part.id, part.name, part.kind, data)
                yield ToolArgumentsDelta(0, number, part.arguments)
                yield ToolCallFinished(0, number)
            case _:
                yield from _other(number, part)
    yield choice.finish
    if result.usage is not None:
        yield UsageReported(result.usage)


def _other(number: int, part: Part) -> Iterator[Event]:
    if isinstance(part, Opaque):
        yield HostedToolEvent(0, number, part.type, part.raw, part.origin)
    elif isinstance(part, Image):
        yield MediaDelta(0, number, "image", data=part.source.data or "")


def _reported(number: int, data: ProviderData | None) -> Iterator[Event]:
    if data is not None:
        yield PartReported(0, number, data)


def _text_logprobs(choice: Choice) -> Iterator[tuple[TokenLogprob, ...]]:
    """Those of each text part."""
    start = 0
    for count in choice.logprob_counts:
        yield choice.logprobs[start : start + count]
        start += count
