"""A streamed chat completion to the client: events as chunks."""

from collections.abc import Sequence
from typing import Any, assert_never

import orjson

from adapters.canonical.citation import Citation
from adapters.canonical.errors import GatewayError
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
from adapters.canonical.messages import Reasoning
from adapters.canonical.request import Request
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION
from adapters.front import AnswerHead
from adapters.openai.annotations import chat_annotations
from adapters.openai.chat.images import IMAGES, MadeImages
from adapters.openai.content import REASONING_DETAILS, reasoning_details
from adapters.openai.finish import finish_fields, finish_word
from adapters.openai.frames import Frames
from adapters.openai.logprobs import chat_logprobs_object
from adapters.openai.prompt_report import prompt_fields
from adapters.openai.signed_reasoning import signed_object
from adapters.openai.unmapped import place_data, place_fields
from adapters.openai.vocabulary import CHAT, arguments_field
from adapters.thought_text import ThoughtText

__all__ = ["ChatStreamRenderer"]

_PLAIN_TAIL = b'},"logprobs":null,"finish_reason":null}]'
"""What stands after a delta that is all of its chunk."""


class _OpenChoice:
    """One choice of a stream: its calls by part, what waits for its next chunk, and its ready-made text chunk."""

    __slots__ = (
        "annotations",
        "calls",
        "cited",
        "images",
        "index",
        "length",
        "pending",
        "plain_part",
        "signed",
        "starts",
        "text_head",
        "text_tail",
        "thought",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.calls: dict[int, tuple[int, str]] = {}
        self.pending: dict[str, bytes] = {}
        self.annotations: list[Any] = []
        self.cited: list[tuple[int, Citation]] = []
        """With their parts; where those end is known at the end."""
        self.length = 0
        """Of all texts, in characters."""
        self.plain_part = -1
        """The part of text that is open, where its next delta is a chunk of nothing but text; else -1."""
        self.starts: dict[int, int] = {}
        """Where the text of each part begins in the content."""
        self.thought: dict[int, list[str]] = {}  # by part, until it is signed
        self.signed = 0
        self.images = MadeImages()
        self.text_head = b""
        self.text_tail = b""


class ChatStreamRenderer:
    """Each delta becomes one chunk; the role goes first, once a choice (PROTOCOL, chat streaming 1 to 20)."""

    def __init__(self, request: Request, head: AnswerHead) -> None:
        self._request = request
        self._frames = Frames(
            head,
            "chat.completion.chunk",
            include_usage=request.include_usage,
            continuous=request.continuous_usage,
        )
        self._choices: dict[int, _OpenChoice] = {}
        self._early_fields: dict[int, dict[str, bytes]] = {}
        self._thought = ThoughtText()

    def feed(self, events: Sequence[Event]) -> bytes:
        out: list[bytes] = []
        choices = self._choices
        for event in events:
            if type(event) is TextDelta:
                choice = choices.get(event.choice) or self._open(event.choice, out, content="")
                text = event.text
                if event.part != choice.plain_part or event.logprobs or event.token_ids:
                    self._add_text(choice, event, out)
                elif text:
                    choice.length += len(text)
                    out += (choice.text_head, orjson.dumps(text), choice.text_tail)
            else:
                self._feed_other(event, out)
        return b"".join(out)

    def finish(self) -> bytes:
        return self._frames.finish()

    def fail(self, error: GatewayError) -> bytes:
        return self._frames.fail(error)

    def _add_text(self, choice: _OpenChoice, event: TextDelta, out: list[bytes]) -> None:
        """A text that begins its part, or whose chunk says more."""
        choice.starts.setdefault(event.part, choice.length)
        choice.length += len(event.text)
        if event.logprobs or event.token_ids or self._has_more(choice):
            out.append(self._token_chunk(choice, event))
        elif event.text:
            out += (choice.text_head, orjson.dumps(event.text), choice.text_tail)
        choice.plain_part = event.part  # what waited has been said

    def _feed_other(self, event: Event, out: list[bytes]) -> None:
        match event:
            case ToolArgumentsDelta():
                self._add_arguments(event, out)
            case ReasoningDelta():
                choice = self._choice(event.choice, out)
                choice.thought.setdefault(event.part, []).append(event.text)
                thought = self._thought.of(event)
                if event.logprobs or event.token_ids or self._has_more(choice):
                    logprobs = chat_logprobs_object((), (), event.logprobs)
                    ids = {"token_ids": event.token_ids} if event.token_ids else None
                    out.append(self._chunk(choice, {"reasoning_content": thought}, logprobs, ids))
                else:
                    self._plain_delta(choice, b'"reasoning_content":', thought, b"", out)
            case ReasoningFinished():
                details = reasoning_details(event.provider_data)
                if details is not None:
                    self._delta(event.choice, {REASONING_DETAILS: details}, out)
                elif event.origin is not None:
                    self._sign(event, out)
            case RefusalDelta():
                self._delta(event.choice, {"refusal": event.text}, out, chat_logprobs_object((), event.logprobs))
            case ToolCallStarted():
                self._start_call(event, out)
            case MediaDelta() if event.media == "image":
                self._choice(event.choice, out).images.add(event.part, event.format, event.data)
            case MediaDelta():
                audio = {"id": event.id, "data": event.data, "transcript": event.transcript}
                known: dict[str, Any] = {name: value for name, value in audio.items() if value}
                if event.expires_at is not None:
                    known["expires_at"] = event.expires_at
                self._delta(event.choice, {event.media: known}, out)
            case AnnotationAdded():
                self._annotate(event, out)
            case ChoiceFinished():
                self._finish_choice(event, out)
            case UsageReported():
                if self._frames.set_usage(event.usage):
                    self._rebuild()
            case ProviderReported():
                self._report(event, out)
            case PromptReported():
                self._frames.report(prompt_fields(event))
                self._say_more()
            case TextDelta() | PartReported() | Started() | ToolCallFinished() | HostedToolEvent():
                pass  # text is rendered above; the others have no word in this dialect
            case _:
                assert_never(event)

    def _add_arguments(self, event: ToolArgumentsDelta, out: list[bytes]) -> None:
        choice = self._choice(event.choice, out)
        index, kind = choice.calls[event.part]
        field = arguments_field(kind)
        if self._has_more(choice):
            out.append(self._chunk(choice, {"tool_calls": [{"index": index, kind: {field: event.text}}]}))
        else:
            head = b'"tool_calls":[{"index":%d,"%b":{"%b":' % (index, kind.encode(), field.encode())
            self._plain_delta(choice, head, event.text, b"}}]", out)

    def _has_more(self, choice: _OpenChoice) -> bool:
        """Whether the next chunk of the choice says more than its delta."""
        return bool(choice.pending or self._frames.once)

    def _plain_delta(self, choice: _OpenChoice, before: bytes, text: str, after: bytes, out: list[bytes]) -> None:
        """A chunk of nothing but a delta, which is ready but for its text."""
        frames = self._frames
        head = b'%b,"choices":[{"index":%d,"delta":{%b' % (frames.head, choice.index, before)
        out += (head, orjson.dumps(text), after, _PLAIN_TAIL, frames.tail)

    def _choice(self, index: int, out: list[bytes]) -> _OpenChoice:
        return self._choices.get(index) or self._open(index, out, content=None)

    def _open(self, index: int, out: list[bytes], *, content: str | None) -> _OpenChoice:
        """Sends the role, with empty text when text follows and null when something else does."""
        choice = self._choices[index] = _OpenChoice(index)
        choice.pending = self._early_fields.pop(index, {})
        self._build_text(choice)
        out.append(self._chunk(choice, {"role": "assistant", "content": content}))
        return choice

    def _rebuild(self) -> None:
        for choice in self._choices.values():
            self._build_text(choice)

    def _say_more(self) -> None:
        """The next chunk, of whatever choice, says more than its own."""
        for choice in self._choices.values():
            choice.plain_part = -1

    def _build_text(self, choice: _OpenChoice) -> None:
        frames = self._frames
        choice.text_head = b'%b,"choices":[{"index":%d,"delta":{"content":' % (frames.head, choice.index)
        choice.text_tail = _PLAIN_TAIL + frames.tail

    def _chunk(
        self, choice: _OpenChoice, delta: dict[str, Any], logprobs: Any = None, finish: dict[str, Any] | None = None
    ) -> bytes:
        body: dict[str, Any] = {"index": choice.index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
        if finish is not None:
            body.update(finish)
        if choice.pending:
            place_fields(choice.pending, body, delta)
            choice.pending = {}
        return self._frames.chunk(body)

    def _delta(self, index: int, delta: dict[str, Any], out: list[bytes], logprobs: Any = None) -> None:
        out.append(self._chunk(self._choice(index, out), delta, logprobs))

    def _token_chunk(self, choice: _OpenChoice, event: TextDelta) -> bytes:
        logprobs = chat_logprobs_object(event.logprobs)
        extra = {"token_ids": event.token_ids} if event.token_ids else None
        return self._chunk(choice, {"content": event.text}, logprobs, extra)

    def _sign(self, event: ReasoningFinished, out: list[bytes]) -> None:
        """One element for the whole thought: clients append elements, or join them by index."""
        choice = self._choice(event.choice, out)
        text = "".join(choice.thought.pop(event.part, ()))
        thought = Reasoning(text=text, signature=event.signature, encrypted=event.encrypted, origin=event.origin)
        unsigned = sum(part < event.part for part in choice.thought)
        detail = signed_object(thought, choice.signed, event.part - unsigned)
        if detail is not None:
            choice.signed += 1
            out.append(self._chunk(choice, {REASONING_DETAILS: [detail]}))

    def _annotate(self, event: AnnotationAdded, out: list[bytes]) -> None:
        """All in one chunk at the end: clients join several lists by an index that they lack."""
        if event.origin != CHAT:
            self._choice(event.choice, out).cited += [(event.part, citation) for citation in event.citations]
        elif event.annotation:
            self._choice(event.choice, out).annotations.append(orjson.Fragment(event.annotation))

    def _start_call(self, event: ToolCallStarted, out: list[bytes]) -> None:
        choice = self._choice(event.choice, out)
        kind = CUSTOM if event.kind == CUSTOM else FUNCTION
        index = len(choice.calls)
        choice.calls[event.part] = (index, kind)
        inner = {"name": event.name, arguments_field(kind): ""}
        call: dict[str, Any] = {"index": index, "id": event.id, "type": kind, kind: inner}
        place_data(event.provider_data, call)
        out.append(self._chunk(choice, {"tool_calls": [call]}))

    def _finish_choice(self, event: ChoiceFinished, out: list[bytes]) -> None:
        choice = self._choice(event.choice, out)
        word = finish_word(self._request, event)
        annotations = choice.annotations + chat_annotations(choice.cited, choice.starts, choice.length)
        if annotations:
            out.append(self._chunk(choice, {"annotations": annotations}))
        if images := choice.images.objects():
            out.append(self._chunk(choice, {IMAGES: images}))
        out.append(self._chunk(choice, {}, None, {"finish_reason": word, **finish_fields(event)}))

    def _report(self, event: ProviderReported, out: list[bytes]) -> None:
        if event.origin != CHAT:
            return
        if event.choice is None:
            if self._frames.report(event.fields):
                self._rebuild()
            self._say_more()
        elif event.choice in self._choices:
            choice = self._choices[event.choice]
            if not choice.pending.keys().isdisjoint(event.fields):  # its first value must not be lost
                out.append(self._chunk(choice, {}))
            choice.pending.update(event.fields)
            choice.plain_part = -1
        else:
            self._early_fields.setdefault(event.choice, {}).update(event.fields)
