"""Parts of an answer as the blocks of a stream: one open at a time, numbered densely, none of them empty.

Parts may come interleaved. A call whose arguments are not yet a whole object stays open, and other parts wait for it;
one whose arguments are whole makes room, though its end was not told.
"""

from typing import Any

import orjson

from adapters.anthropic.citations import citation_objects
from adapters.anthropic.vocabulary import MESSAGES, frame
from adapters.call_objects import is_object
from adapters.canonical.events import (
    AnnotationAdded,
    HostedToolEvent,
    PartEvent,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from adapters.origin_marks import marked
from adapters.raw_json import fragments
from adapters.thought_text import ThoughtText

__all__ = ["DELTA_TAIL", "Blocks"]

_TEXT = "text"
_THINKING = "thinking"
_CALL = "tool_use"
_DELTA_HEAD = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b":'
_DELTAS = {
    _TEXT: b'text_delta","text',
    _THINKING: b'thinking_delta","thinking',
    _CALL: b'input_json_delta","partial_json',
}
DELTA_TAIL = b"}}\n\n"
"""What stands after the JSON text of a delta."""


class Blocks:
    """Writes frames to a list. `kind` and `part` are those of the open block, "" and None where there is none."""

    __slots__ = ("_held", "_index", "_input", "_thought", "called", "delta_head", "kind", "part", "refused")

    def __init__(self) -> None:
        self.kind = ""
        self.part: int | None = None
        self.called = False
        """Whether a tool was called."""
        self.refused = False
        """Whether the model refused in words."""
        self.delta_head = b""
        """What stands before the JSON text of the open block's next delta; DELTA_TAIL follows."""
        self._thought = ThoughtText()
        self._index = -1
        self._input: list[str] = []
        self._held: list[PartEvent] = []

    def feed(self, event: PartEvent, out: list[bytes]) -> None:
        if self.kind == _CALL and event.part != self.part:
            if self._held or not is_object("".join(self._input)):
                self._held.append(event)
                return
            self._close(out)
        self._write(event, out)

    def finish(self, out: list[bytes]) -> None:
        """Ends what is open, and says what waited."""
        while self.kind:
            self._close(out)
            self._release(out)

    def _release(self, out: list[bytes]) -> None:
        held, self._held = self._held, []
        for event in held:
            self.feed(event, out)

    def _write(self, event: PartEvent, out: list[bytes]) -> None:
        match event:
            case ToolArgumentsDelta():
                if event.part == self.part:  # a call that made room has its whole object
                    self._input.append(event.text)
                    out += (self.delta_head, orjson.dumps(event.text), DELTA_TAIL)
            case ReasoningDelta():
                if event.text:
                    self._open_thinking(event.part, out)
                    out += (self.delta_head, orjson.dumps(self._thought.of(event)), DELTA_TAIL)
            case TextDelta() | RefusalDelta():
                if event.text:
                    self.refused |= type(event) is RefusalDelta
                    self._open_text(event.part, out)
                    out += (self.delta_head, orjson.dumps(event.text), DELTA_TAIL)
            case AnnotationAdded():
                if event.origin == MESSAGES:
                    self._cite(event.part, orjson.Fragment(event.annotation), out)
                else:
                    for citation in citation_objects(event.citations):
                        self._cite(event.part, citation, out)
            case ReasoningFinished():
                self._end_thought(event, out)
            case ToolCallStarted():
                self.called = True
                self._open(event.part, _CALL, call_object(event), out)
                self._input = []
            case ToolCallFinished():
                if event.part == self.part:
                    self._close(out)
                    self._release(out)
            case HostedToolEvent():
                if event.origin == MESSAGES:
                    self._open(event.part, event.type, orjson.Fragment(event.raw), out)
                    self._close(out)

    def _end_thought(self, event: ReasoningFinished, out: list[bytes]) -> None:
        if event.encrypted is not None:
            data = marked(event.encrypted, event.origin)
            self._open(event.part, _THINKING, {"type": "redacted_thinking", "data": data}, out)
            self._close(out)
        elif event.signature is not None:
            self._open_thinking(event.part, out)
            self._delta("signature_delta", {"signature": marked(event.signature, event.origin)}, out)

    def _open_text(self, part: int, out: list[bytes]) -> None:
        if self.part != part or self.kind != _TEXT:
            self._open(part, _TEXT, {"type": "text", "text": ""}, out)

    def _cite(self, part: int, citation: Any, out: list[bytes]) -> None:
        self._open_text(part, out)
        self._delta("citations_delta", {"citation": citation}, out)

    def _open_thinking(self, part: int, out: list[bytes]) -> None:
        if self.part != part or self.kind != _THINKING:
            self._open(part, _THINKING, {"type": "thinking", "thinking": "", "signature": ""}, out)

    def _open(self, part: int, kind: str, block: Any, out: list[bytes]) -> None:
        self._close(out)
        self._index += 1
        self.part, self.kind = part, kind
        self.delta_head = _DELTA_HEAD % (self._index, _DELTAS.get(kind, b""))
        out.append(frame("content_block_start", {"index": self._index, "content_block": block}))

    def _delta(self, kind: str, fields: dict[str, Any], out: list[bytes]) -> None:
        out.append(frame("content_block_delta", {"index": self._index, "delta": {"type": kind, **fields}}))

    def _close(self, out: list[bytes]) -> None:
        if self.kind:
            self.part, self.kind = None, ""
            out.append(frame("content_block_stop", {"index": self._index}))


def call_object(event: ToolCallStarted) -> dict[str, Any]:
    """The block of a call that begins; its input follows."""
    found: dict[str, Any] = {"type": _CALL, "id": event.id, "name": event.name, "input": {}}
    if event.provider_data is not None and event.provider_data.origin == MESSAGES:
        found.update(fragments(event.provider_data.fields))
    return found
