"""A whole answer, and `fold`, the one way to make it: a non-streamed answer is the fold of the same events (law 1)."""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from adapters.canonical.errors import StreamTruncated
from adapters.canonical.events import (
    AnnotationAdded,
    ChoiceFinished,
    Event,
    HostedToolEvent,
    MediaDelta,
    PartReported,
    PromptReported,
    ProviderReported,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import (
    Audio,
    Image,
    MediaSource,
    Opaque,
    Part,
    ProviderData,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Video,
    joined_data,
)
from adapters.canonical.usage import TokenLogprob, Usage

__all__ = ["Choice", "Folder", "Result", "fold"]


class Choice(Struct, frozen=True, kw_only=True):
    """One finished choice. `logprobs` are those of its text parts, `logprob_counts` says how many of each; `token_ids`
    are those of its text and reasoning."""

    index: int
    parts: tuple[Part, ...]
    finish: ChoiceFinished
    logprobs: tuple[TokenLogprob, ...] = ()
    logprob_counts: tuple[int, ...] = ()
    refusal_logprobs: tuple[TokenLogprob, ...] = ()
    reasoning_logprobs: tuple[TokenLogprob, ...] = ()
    token_ids: tuple[int, ...] = ()
    provider_fields: Mapping[str, bytes] = {}


class Result(Struct, frozen=True, kw_only=True):
    """`provider_fields` are unmapped fields of the dialect `provider_origin`, raw JSON by name."""

    started: Started
    choices: tuple[Choice, ...]
    usage: Usage | None = None
    prompts: tuple[PromptReported, ...] = ()
    provider_fields: Mapping[str, bytes] = {}
    provider_origin: str | None = None

    def fields_of(self, dialect: str) -> Mapping[str, bytes]:
        """The unmapped fields, where they are this dialect's."""
        return self.provider_fields if self.provider_origin == dialect else {}


class _OpenChoice:
    """A choice while its events arrive: pieces per part, joined once at the end."""

    __slots__ = ("finish", "logprobs", "pieces", "provider", "reasoning_logprobs", "refusal_logprobs", "token_ids")

    def __init__(self) -> None:
        self.pieces: dict[int, list[Event]] = {}
        self.logprobs: list[TokenLogprob] = []
        self.refusal_logprobs: list[TokenLogprob] = []
        self.reasoning_logprobs: list[TokenLogprob] = []
        self.token_ids: list[int] = []
        self.provider: dict[str, bytes] = {}
        self.finish: ChoiceFinished | None = None

    def add(self, part: int, event: Event) -> None:
        self.pieces.setdefault(part, []).append(event)


class Folder:
    """Collects events; `result()` is the whole answer."""

    def __init__(self) -> None:
        self._started = Started()
        self._choices: dict[int, _OpenChoice] = {}
        self._usage: Usage | None = None
        self._prompts: list[PromptReported] = []
        self._provider: dict[str, bytes] = {}
        self._origin: str | None = None

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            # What every answer has goes by its type: a pattern that says no costs four times as much.
            if type(event) is TextDelta:
                choice = self._choice(event.choice)
                choice.add(event.part, event)
                choice.logprobs += event.logprobs
                choice.token_ids += event.token_ids
            elif type(event) is ChoiceFinished:
                self._choice(event.choice).finish = event
            elif type(event) is UsageReported:
                self._usage = event.usage
            elif type(event) is Started:
                self._started = event
            elif type(event) is ProviderReported:
                self._origin = event.origin
                target = self._provider if event.choice is None else self._choice(event.choice).provider
                target.update(event.fields)
            else:
                match event:
                    case PromptReported():
                        self._prompts.append(event)
                    case ReasoningDelta():
                        choice = self._choice(event.choice)
                        choice.add(event.part, event)
                        choice.reasoning_logprobs.extend(event.logprobs)
                        choice.token_ids.extend(event.token_ids)
                    case RefusalDelta():
                        choice = self._choice(event.choice)
                        choice.add(event.part, event)
                        choice.refusal_logprobs.extend(event.logprobs)
                    case ToolCallFinished():
                        pass  # the fold ends every call with its choice
                    case _:
                        self._choice(event.choice).add(event.part, event)

    def _choice(self, index: int) -> _OpenChoice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _OpenChoice()
        return choice

    def result(self) -> Result:
        """Raises StreamTruncated for a choice without a finish, and where no choice came at all (law 3)."""
        if not self._choices:
            raise StreamTruncated("the answer ended before any choice began")
        return Result(
            started=self._started,
            choices=tuple([_close(index, self._choices[index]) for index in sorted(self._choices)]),
            usage=self._usage,
            prompts=tuple(self._prompts),
            provider_fields=self._provider,
            provider_origin=self._origin,
        )


def fold(events: Iterable[Event]) -> Result:
    """The answer that the events add up to."""
    folder = Folder()
    folder.feed(events)
    return folder.result()


def _close(index: int, choice: _OpenChoice) -> Choice:
    if choice.finish is None:
        raise StreamTruncated(f"the answer ended before choice {index} was finished")
    return Choice(
        index=index,
        parts=tuple([_join(choice.pieces[part]) for part in sorted(choice.pieces)]),
        finish=choice.finish,
        logprobs=tuple(choice.logprobs),
        logprob_counts=_logprob_counts(choice) if choice.logprobs else (),
        refusal_logprobs=tuple(choice.refusal_logprobs),
        reasoning_logprobs=tuple(choice.reasoning_logprobs),
        token_ids=tuple(choice.token_ids),
        provider_fields=choice.provider,
    )


def _logprob_counts(choice: _OpenChoice) -> tuple[int, ...]:
    texts = [choice.pieces[part] for part in sorted(choice.pieces)]
    return tuple(
        [
            sum(len(piece.logprobs) for piece in pieces if isinstance(piece, TextDelta))
            for pieces in texts
            if isinstance(_told(pieces), TextDelta | AnnotationAdded)
        ]
    )


def _told(pieces: list[Event]) -> Event:
    """The event that decides what kind of part these make: the first that says something."""
    return next((piece for piece in pieces if not isinstance(piece, PartReported)), pieces[0])


def _join(pieces: list[Event]) -> Part:
    """The part that the events of one part number make."""
    first = pieces[0]
    if type(first) is TextDelta and len(pieces) == 1:  # nearly every part of an answer that came whole
        return Text(text=first.text)
    first = _told(pieces)
    match first:
        case TextDelta() | AnnotationAdded():
            texts = [piece.text for piece in pieces if isinstance(piece, TextDelta)]
            notes = [piece for piece in pieces if isinstance(piece, AnnotationAdded)]
            return Text(
                provider_data=_reported(pieces),
                text="".join(texts),
                annotations=tuple([note.annotation for note in notes if note.annotation]),
                annotated_by=notes[0].origin if notes else None,
                citations=tuple([citation for note in notes for citation in note.citations]),
            )
        case ReasoningDelta() | ReasoningFinished():
            return _join_reasoning(pieces)
        case RefusalDelta():
            text = "".join([piece.text for piece in pieces if isinstance(piece, RefusalDelta)])
            return Refusal(text=text, provider_data=_reported(pieces))
        case PartReported():
            return Text(text="", provider_data=_reported(pieces))
        case ToolCallStarted():
            return ToolCall(
                id=first.id,
                name=first.name,
                kind=first.kind,
                arguments="".join([piece.text for piece in pieces if isinstance(piece, ToolArgumentsDelta)]),
                provider_data=first.provider_data,
            )
        case MediaDelta():
            return _join_media([piece for piece in pieces if isinstance(piece, MediaDelta)])
        case HostedToolEvent():
            last = pieces[-1]
            assert isinstance(last, HostedToolEvent)
            return Opaque(type=last.type, raw=last.raw, origin=last.origin)
        case _:
            raise TypeError(f"no part starts with {type(first).__name__}")


def _reported(pieces: list[Event]) -> ProviderData | None:
    data: ProviderData | None = None
    for piece in pieces:
        if isinstance(piece, PartReported):
            data = joined_data(data, piece.provider_data)
    return data


def _join_reasoning(pieces: list[Event]) -> Reasoning:
    text: list[str] = []
    summary: dict[int, str] = {}
    signature = encrypted = origin = None
    data: ProviderData | None = None
    for piece in pieces:
        if isinstance(piece, ReasoningDelta):
            if piece.summary:
                summary[piece.piece] = summary.get(piece.piece, "") + piece.text
            else:
                text.append(piece.text)
        elif isinstance(piece, ReasoningFinished):
            signature = piece.signature or signature
            encrypted = piece.encrypted or encrypted
            origin = piece.origin or origin
            data = joined_data(data, piece.provider_data)
    return Reasoning(
        text="".join(text),
        summary=tuple([summary[piece] for piece in sorted(summary)]),
        signature=signature,
        encrypted=encrypted,
        origin=origin,
        provider_data=data,
    )


def _join_media(pieces: list[MediaDelta]) -> Part:
    first = pieces[0]
    source = MediaSource(data="".join([piece.data for piece in pieces]))
    match first.media:
        case "audio":
            return Audio(
                source=source,
                format=first.format,
                id=next((piece.id for piece in pieces if piece.id), None),
                expires_at=next((piece.expires_at for piece in pieces if piece.expires_at is not None), None),
                transcript="".join([piece.transcript for piece in pieces]),
            )
        case "video":
            return Video(source=replace(source, media_type=first.format))
        case _:
            return Image(source=replace(source, media_type=first.format))
