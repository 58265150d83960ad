"""Contents and their parts from a client: JSON -> canonical messages.

Calls without an id get one by their place, the same in every request, and results without one answer the calls of the
turn before them by name, in order. Unmapped fields stay with their part, and a part that we do not know stays whole.
"""

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
from adapters.field_types import BOOL, NAME, RAW_OBJECT, TEXT
from adapters.gemini.media import parse_media
from adapters.gemini.open_calls import OpenCalls
from adapters.gemini.signatures import Place, place_of, unsealed
from adapters.gemini.vocabulary import GEMINI
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
    parts = _Content(content, "", OpenCalls()).read()
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
    spoken: list[list[Part]] = []  # by the model, in the contents right before
    place = ""
    calls = OpenCalls()
    for number, (raw, path) in enumerate(rows):
        content = object_at(raw, path)
        role = content.take("role", _ROLE) or "user"
        parts = _Content(content, f"{MINTED}{number}_", calls).read()
        if role == "model":
            _refuse(parts, ToolResult, path, "functionResponse")
            if not spoken:
                place, calls = path, OpenCalls()
            spoken.append(parts)
            for part in parts:
                if isinstance(part, ToolCall):
                    calls.add(part)
            continue
        if spoken:
            found.append((place, Message(role=ASSISTANT, parts=_joined(spoken))))
            spoken = []
        if not parts:
            raise InvalidRequest.at(f"{path}.parts", "this field is required")
        _refuse(parts, ToolCall, path, "functionCall")
        found += [(path, Message(role=TOOL, parts=(part,))) for part in parts if isinstance(part, ToolResult)]
        said = tuple([part for part in parts if not isinstance(part, ToolResult)])
        if said:
            found.append((path, Message(role=USER, parts=said)))
    if spoken:
        found.append((place, Message(role=ASSISTANT, parts=_joined(spoken))))
    return found


def _joined(contents: list[list[Part]]) -> tuple[Part, ...]:
    """The parts of one turn. A text, and a thought with its signature, may go on in the next content."""
    found: list[Part] = []
    pieces: list[str] = []  # of the last part
    for parts in contents:
        for index, part in enumerate(parts):
            text = part.text if isinstance(part, Text | Reasoning) else ""
            if index == 0 and found and _goes_on(found[-1], part):
                pieces.append(text)
                found[-1] = part
                continue
            _close(found, pieces)
            pieces = [text]
            found.append(part)
    _close(found, pieces)
    return tuple(found)


def _goes_on(last: Part, part: Part) -> bool:
    match last, part:
        case Text(), Text():
            return last.provider_data is None
        case Reasoning(), Reasoning():
            behind = place_of(part.provider_data) is Place.BEHIND
            return last.signature is None and last.encrypted is None and not behind
        case _:
            return False


def _close(found: list[Part], pieces: list[str]) -> None:
    if len(pieces) > 1 and isinstance(found[-1], Text | Reasoning):
        found[-1] = replace(found[-1], text="".join(pieces))


def _refuse(parts: list[Part], kind: type[Part], path: str, word: str) -> None:
    if any(isinstance(part, kind) for part in parts):
        raise InvalidRequest.at(f"{path}.parts", f"no {word} in a turn of this role")


class _Content:
    """The parts of one content. `prefix` begins the ids of calls that have none; `calls` it may answer."""

    def __init__(self, content: JsonObject, prefix: str, calls: OpenCalls) -> None:
        self._content = content
        self._prefix = prefix
        self._calls = calls
        self._parts: list[Part] = []

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
            self._parts.append(Text(text=text, provider_data=ProviderData(GEMINI, rest) if rest else None))
            if signed.origin is not None:
                self._parts.append(signed)

    def _add_thought(self, text: str, signature: str | None) -> None:
        """A signature alone, as it ends a stream of thoughts, belongs to the thought right before it."""
        last = self._parts[-1] if self._parts else None
        if not text and isinstance(last, Reasoning) and last.signature is None and last.encrypted is None:
            self._parts[-1] = unsealed(last.text, signature, Place.THOUGHT)
        else:
            self._parts.append(unsealed(text, signature, Place.THOUGHT))

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
        answered = self._calls.take(call_id, name)
        if answered is None:
            raise InvalidRequest.at(response.path, "it answers no call of the turn before it")
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
