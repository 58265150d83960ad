"""Events of an answer whose texts still hold a model's own marks, to events with the parts that the marks stand for.

Owns where a token's logprob and id go: with the text that shows the token's first character. Tokens of marks, of calls
and of hidden reasoning go nowhere. Knows no providers; whose answers have marks is said by who makes the pipelines.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    PartEvent,
    PromptReported,
    ProviderReported,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReported,
)
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob
from adapters.text.pipeline import HiddenReasoning, Passage, TextPipeline

__all__ = ["MarkedEvents"]


class MarkedEvents:
    """Reads the texts of every choice. `new_pipeline` makes what reads one choice."""

    def __init__(self, new_pipeline: Callable[[], TextPipeline]) -> None:
        self._new_pipeline = new_pipeline
        self._choices: dict[int, _Choice] = {}

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """What is known by these events. Text that could be a mark is held back until its choice goes on or ends."""
        out: list[Event] = []
        for event in events:
            match event:
                case Started() | UsageReported() | PromptReported() | ProviderReported():
                    out.append(event)
                case TextDelta():
                    out += self._choice(event.choice).text(event)
                case ChoiceFinished():
                    out += self._choice(event.choice).finish(event)
                case _:
                    out.append(self._choice(event.choice).other(event))
        return out

    def _choice(self, number: int) -> "_Choice":
        choice = self._choices.get(number)
        if choice is None:
            choice = self._choices[number] = _Choice(number, self._new_pipeline())
        return choice


class _Token(NamedTuple):
    """What is known of a token, or of several, and where their text lies in the whole text."""

    start: int
    end: int
    logprobs: tuple[TokenLogprob, ...]
    ids: tuple[int, ...]


class _Choice:
    def __init__(self, number: int, pipeline: TextPipeline) -> None:
        self._number = number
        self._pipeline = pipeline
        self._position = 0
        self._held: deque[_Token] = deque()
        self._parts: dict[tuple[bool, int], int] = {}
        """Our numbers of parts, by whether the pipeline found them, and its number or the upstream's."""

    def text(self, delta: TextDelta) -> Iterator[Event]:
        start = self._position
        self._position += len(delta.text)
        self._held.extend(_tokens(delta, start, self._position))
        yield from self._told(self._pipeline.feed(delta.text))

    def finish(self, finished: ChoiceFinished) -> Iterator[Event]:
        yield from self._told(self._pipeline.flush(is_cut=finished.reason is StopReason.LENGTH))
        last = self._pipeline.last_part()
        rest = [token for token in self._held if token.start == token.end == self._position]
        if last is not None and rest:
            yield self._with_tokens(last, rest)
        if finished.reason is StopReason.STOP and self._pipeline.num_calls:
            finished = replace(finished, reason=StopReason.TOOL_CALLS)
        yield finished

    def other(self, event: PartEvent) -> Event:
        """What the upstream told as a part of its own."""
        return replace(event, part=self._part(False, event.part))

    def _told(self, passages: Sequence[Passage]) -> Iterator[Event]:
        for event, start, end in passages:
            match event:
                case HiddenReasoning():
                    self._tokens_of(start, end)
                case TextDelta() | ReasoningDelta():
                    yield self._with_tokens(event, self._tokens_of(start, end))
                case _:
                    yield replace(event, choice=self._number, part=self._part(True, event.part))

    def _with_tokens(self, delta: TextDelta | ReasoningDelta, tokens: Sequence[_Token]) -> Event:
        return replace(
            delta,
            choice=self._number,
            part=self._part(True, delta.part),
            logprobs=tuple([entry for token in tokens for entry in token.logprobs]),
            token_ids=tuple([number for token in tokens for number in token.ids]),
        )

    def _tokens_of(self, start: int, end: int) -> list[_Token]:
        """The held tokens of these characters. Those before them are dropped. One without text goes with the next."""
        tokens = []
        while self._held and self._held[0].start < end:
            token = self._held.popleft()
            if max(token.end, token.start + 1) > start:
                tokens.append(token)
        return tokens

    def _part(self, is_ours: bool, number: int) -> int:
        return self._parts.setdefault((is_ours, number), len(self._parts))


def _tokens(delta: TextDelta, start: int, end: int) -> Iterator[_Token]:
    """What a delta tells of its tokens. Where their texts do not fill the delta's, the last one reaches its end."""
    entries, ids = delta.logprobs, delta.token_ids
    if not entries:
        if ids:
            yield _Token(start, end, (), ids)
        return
    paired = len(ids) == len(entries)
    at = start
    for number, entry in enumerate(entries):
        is_last = number == len(entries) - 1
        until = end if is_last else min(at + entry.num_characters, end)
        own = (ids[number],) if paired else ids if number == 0 else ()
        yield _Token(at, until, (entry,), own)
        at = until
