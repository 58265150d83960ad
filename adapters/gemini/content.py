"""Contents and their parts from a client: JSON -> canonical messages.

Calls without an id get one by their place, the same in every request, and results without one answer the calls of the
turn before them by name, in order. Unmapped fields stay with their part, and a part that we do not know stays whole.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import (
    ASSISTANT,
    SYSTEM,
    TOOL,
    USER,
    MediaSource,
    Message,
    Opaque,
    Part,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from adapters.gemini.media import parse_media
from adapters.gemini.signatures import Place, unsealed
from adapters.gemini.vocabulary import BOOL, GEMINI, NAME, RAW_OBJECT, TEXT
from adapters.gemini.wire_objects import object_at, take_list, take_object, take_objects
from adapters.json_fields import JsonObject
from adapters.minted_ids import MINTED

__all__ = ["Placed", "take_messages", "take_system"]

Placed = tuple[str, Message]
"""A message, and where it stands in the body."""

_ROLE = Decoder(Literal["user", "model", "function"])
_SIGNATURE = "thoughtSignature"


class _Answer(Struct, forbid_unknown_fields=True):
    """A result that is nothing but text."""

    output: str | None = None
    error: str | None = None


_decode_answer = Decoder(_Answer).decode


def take_system(body: JsonObject) -> list[Placed]:
    content = take_object(body, "systemInstruction")
    if content is None:
        return []
    content.take("role", TEXT)
    parts = _Turn(content, "").read()
    if not all(isinstance(part, Text) for part in parts):
        raise InvalidRequest.at("systemInstruction", "expected text alone")
    return [("systemInstruction", Message(role=SYSTEM, parts=tuple(parts)))] if parts else []


def take_messages(body: JsonObject) -> list[Placed]:
    """The turns. One that answers calls becomes a tool message for each answer, then what else the user said.

    Neighbours of one role are one turn, as Google takes them: chats of its SDKs keep a stream chunk by chunk."""
    rows = take_list(body, "contents")
    if not rows:
        raise InvalidRequest.at("contents", "this field is required")
    found: list[Placed] = []
    calls: list[ToolCall] = []
    for number, (raw, path) in enumerate(rows):
        content = object_at(raw, path)
        role = content.take("role", _ROLE) or "user"
        goes_on = role == "model" and bool(found) and found[-1][1].role == ASSISTANT
        before = found.pop() if goes_on else (path, Message(role=ASSISTANT, parts=()))
        turn = _Turn(content, f"{MINTED}{number}_", calls, before[1].parts)
        parts = turn.read()
        if role == "model":
            _refuse(parts, ToolResult, path, "functionResponse")
            calls = [part for part in parts if isinstance(part, ToolCall)]
            found.append((before[0], Message(role=ASSISTANT, parts=tuple(parts))))
            continue
        calls = turn.open_calls
        if not parts:
            raise InvalidRequest.at(f"{path}.parts", "this field is required")
        _refuse(parts, ToolCall, path, "functionCall")
        found += [(path, Message(role=TOOL, parts=(part,))) for part in parts if isinstance(part, ToolResult)]
        said = tuple([part for part in parts if not isinstance(part, ToolResult)])
        if said:
            found.append((path, Message(role=USER, parts=said)))
    return found


def _refuse(parts: list[Part], kind: type[Part], path: str, word: str) -> None:
    if any(isinstance(part, kind) for part in parts):
        raise InvalidRequest.at(f"{path}.parts", f"no {word} in a turn of this role")


class _Turn:
    """The parts of one content behind those of its turn `before`, whose last text or thought goes on in its first.

    `prefix` begins the ids of calls that have none, `open_calls` are those that nothing answered yet."""

    def __init__(
        self, content: JsonObject, prefix: str, open_calls: Sequence[ToolCall] = (), before: Sequence[Part] = ()
    ) -> None:
        self._content = content
        self._prefix = prefix
        self.open_calls = list(open_calls)
        self._parts = list(before)
        self._before = len(before)

    def read(self) -> list[Part]:
        for number, (raw, path) in enumerate(take_list(self._content, "parts") or ()):
            self._add(object_at(raw, path), raw, f"{self._prefix}{number}")
        self._content.refuse_rest()
        return self._parts

    def _add(self, part: JsonObject, raw: bytes, call_id: str) -> None:
        signature = part.peek_raw(_SIGNATURE)
        if "functionCall" in part:
            self._sign(part, Place.NEXT)
            self._parts.append(_call(part, call_id))
        elif "functionResponse" in part:
            self._parts.append(self._result(part))
        elif "inlineData" in part or "fileData" in part:
            self._sign(part, Place.NEXT)
            self._parts.append(_media(part))
        elif "text" in part or (signature is not None and part.names() == [_SIGNATURE]):
            self._add_text(part)
        else:
            kind = next((name for name in part.names() if not name.startswith("thought")), None)
            if kind is None:
                raise InvalidRequest.at(part.path, "a part must say something")
            self._parts.append(Opaque(type=kind, raw=raw, origin=GEMINI))

    def _add_text(self, part: JsonObject) -> None:
        text = part.take("text", TEXT) or ""
        if part.take("thought", BOOL):
            self._add_thought(text, part.take(_SIGNATURE, TEXT))
        elif not text:
            self._sign(part, Place.BEHIND)
        else:
            signature = part.take(_SIGNATURE, TEXT)
            signed = unsealed("", signature, Place.BEHIND)
            rest = dict(part.said())
            if signature and signed.origin is None:  # Gemini's own word, which stays where it was
                rest[_SIGNATURE] = encode(signature)
            last = self._last_before()
            if isinstance(last, Text) and last.provider_data is None:
                self._parts.pop()
                text = last.text + text
            self._parts.append(Text(text=text, provider_data=ProviderData(GEMINI, rest) if rest else None))
            if signed.origin is not None:
                self._parts.append(signed)

    def _add_thought(self, text: str, signature: str | None) -> None:
        """A signature alone, as it ends a stream of thoughts, belongs to the thought right before it."""
        last = self._parts[-1] if self._parts and not text else self._last_before()
        if isinstance(last, Reasoning) and last.signature is None and last.encrypted is None:
            self._parts[-1] = unsealed(last.text + text, signature, Place.THOUGHT)
        else:
            self._parts.append(unsealed(text, signature, Place.THOUGHT))

    def _last_before(self) -> Part | None:
        """The last part of the contents before, where nothing of this one stands behind it."""
        return self._parts[-1] if self._before and len(self._parts) == self._before else None

    def _sign(self, part: JsonObject, place: Place) -> None:
        """The signature of a call or picture joins the thought right before it."""
        signature = part.take(_SIGNATURE, TEXT)
        if not signature:
            return
        last = self._parts[-1] if self._parts else None
        if place is Place.NEXT and isinstance(last, Reasoning) and last.signature is None and last.encrypted is None:
            signed = unsealed(last.text, signature, place)
            self._parts[-1] = signed
        else:
            self._parts.append(unsealed("", signature, place))

    def _result(self, part: JsonObject) -> ToolResult:
        response = take_object(part, "functionResponse")
        if response is None:
            raise InvalidRequest(f"{part.at('functionResponse')}: this field is required", param=part.path)
        name = response.require("name", NAME)
        call_id = response.take("id", TEXT)
        answered = next((call for call in self.open_calls if call_id and call.id == call_id), None)
        if answered is None:  # Gemini CLI answers calls that have no id under ids of its own
            nameless = [call for call in self.open_calls if not call_id or call.id.startswith(MINTED)]
            answered = next((call for call in nameless if call.name == name), None)
        if answered is None:
            raise InvalidRequest.at(response.path, "it answers no call of the turn before it")
        self.open_calls.remove(answered)
        raw = response.take("response", RAW_OBJECT) or b"{}"
        said, is_error = _said(raw)
        parts: list[Part] = [Text(text=said)] if said else []
        for inner in take_objects(response, "parts") or ():
            parts.append(_media(inner))
        data = {"response": raw, **response.said()}
        return ToolResult(
            call_id=answered.id, parts=tuple(parts), is_error=is_error, provider_data=ProviderData(GEMINI, data)
        )


def _said(raw: bytes) -> tuple[str, bool | None]:
    """A result's text, and whether it is an error: `{"output": "..."}`, `{"error": "..."}`, or the whole object."""
    try:
        found = _decode_answer(raw)
    except DecodeError:
        return raw.decode(), None
    if found.error is not None and found.output is None:
        return found.error, True
    if found.output is not None and found.error is None:
        return found.output, None
    return raw.decode(), None


def _call(part: JsonObject, call_id: str) -> ToolCall:
    """The arguments are passed on as they came, as text."""
    call = take_object(part, "functionCall")
    if call is None:
        raise InvalidRequest(f"{part.at('functionCall')}: this field is required", param=part.path)
    args = call.take("args", RAW_OBJECT)
    found = ToolCall(
        id=call.take("id", TEXT) or call_id,
        name=call.require("name", NAME),
        arguments="{}" if args is None else args.decode(),
    )
    rest = part.said() | {f"functionCall.{name}": raw for name, raw in call.said().items()}
    return replace(found, provider_data=ProviderData(GEMINI, rest)) if rest else found


def _media(part: JsonObject) -> Part:
    blob = take_object(part, "inlineData")
    if blob is not None:
        source = MediaSource(data=blob.require("data", NAME), media_type=blob.require("mimeType", NAME))
    else:
        blob = take_object(part, "fileData")
        if blob is None:
            raise InvalidRequest.at(part.path, "expected inlineData or fileData")
        source = MediaSource(url=blob.require("fileUri", NAME), media_type=blob.take("mimeType", NAME))
    name = blob.take("displayName", TEXT)
    blob.refuse_rest()
    rest = part.said()
    return parse_media(source, name, ProviderData(GEMINI, rest) if rest else None)
