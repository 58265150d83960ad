"""The conversation towards Gemini: canonical messages -> the system instruction and contents.

Neighbours of one role are one content; parts are neither joined nor moved. The results of a turn's calls stand first in
the next turn, in the order of the calls. Signatures go back to the provider that made them, in the part that they came
with; a call that another model made gets the placeholder that the API has for it.
"""

from typing import Any, assert_never

import orjson
from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import (
    DEVELOPER,
    SYSTEM,
    USER,
    Audio,
    Document,
    File,
    Image,
    Message,
    Opaque,
    Part,
    ProviderData,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
    text_of,
)
from adapters.canonical.request import Request
from adapters.gemini.media import document_part, media_part
from adapters.gemini.signatures import SKIPPED, Place, place_of, signature_in_chat, signs_next
from adapters.gemini.thinking import is_third_generation
from adapters.gemini.vocabulary import GEMINI, TOOL_NAMES
from adapters.minted_ids import is_minted

__all__ = ["contents_of"]

_INSTRUCTIONS = (SYSTEM, DEVELOPER)
_MODEL = "model"
_SIGNATURE = "thoughtSignature"
_SIGNED = (ToolCall, Image, Audio, Video)
_object = Decoder(dict[str, Raw])

WirePart = dict[str, Any] | orjson.Fragment
"""A part, or one that only this dialect understands, as it came."""


class _Turn:
    __slots__ = ("calls", "parts", "results", "role")

    def __init__(self, role: str) -> None:
        self.role = role
        self.parts: list[WirePart] = []
        self.calls: dict[str, str] = {}
        """The name of each call by its id, in order."""
        self.results: dict[str, ToolResult] = {}


def contents_of(request: Request, provider: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The parts of the system instruction, and the contents. `provider` is the name of the one that is asked.

    Raises InvalidRequest for results and calls that do not belong together, naming the id.
    """
    messages = request.messages or ()
    leading = next((i for i, message in enumerate(messages) if message.role not in _INSTRUCTIONS), len(messages))
    system = [part for message in messages[:leading] for part in _instruction(message)]
    writer = _Writer(request.dialect, provider)
    for message in messages[leading:]:
        writer.add(message)
    turns = writer.turns
    if not turns:
        raise InvalidRequest("messages: expected a message beside the system's", param="messages")
    contents = [{"role": turn.role, "parts": turn.parts} for turn in _answered(turns, writer)]
    if is_third_generation(request.model):
        _sign_foreign_calls(contents)
    return system, contents


class _Writer:
    def __init__(self, dialect: str, provider: str) -> None:
        self.turns: list[_Turn] = []
        self._dialect = dialect
        self._provider = provider

    def add(self, message: Message) -> None:
        match message.role:
            case "user" | "tool":
                self._add_parts(message, USER)
            case "assistant":
                self._add_parts(message, _MODEL)
            case "system" | "developer":
                text = text_of(message.parts)
                if text.strip():
                    self._turn(USER).parts.append({"text": f"<system>\n{text}\n</system>"})
            case unknown:
                raise UnsupportedParameter(f"messages: Gemini has no role {unknown}", param="messages")

    def _add_parts(self, message: Message, role: str) -> None:
        name = message.name if message.role == USER else None
        signature: str | None = None
        for number, part in enumerate(message.parts):
            if isinstance(part, ToolResult):
                self._add_result(part)
                continue
            if isinstance(part, Reasoning):
                following = message.parts[number + 1] if number + 1 < len(message.parts) else None
                signature = self._think(part, following, role)
                continue
            if isinstance(part, ToolCall):
                self._turn(role).calls[part.id] = part.name
            found = self._part(part)
            if found is None:
                continue
            if name is not None and isinstance(part, Text) and isinstance(found, dict):
                found["text"], name = f"{name}: {part.text}", None
            if signature is None and isinstance(part, ToolCall):
                signature = signature_in_chat(part, self._provider)
            if signature is not None and isinstance(found, dict):
                found[_SIGNATURE] = signature
            signature = None
            self._turn(role).parts.append(found)

    def _think(self, part: Reasoning, following: Part | None, role: str) -> str | None:
        """Writes what was thought where it is this provider's; gives the signature of the part that follows."""
        is_own = part.origin == self._provider or (part.origin is None and self._dialect == GEMINI)
        if not is_own:
            return None
        thought: dict[str, Any] = {"text": part.text, "thought": True}
        written = bool(part.text) and self._dialect == GEMINI
        signature = part.signature
        signs_following = isinstance(following, _SIGNED) and signs_next(part)
        if written and signature is not None and place_of(part.provider_data) is Place.THOUGHT:
            thought[_SIGNATURE], signature = signature, None
        if written:
            self._turn(role).parts.append(thought)
        if signs_following:
            return signature
        if signature is not None:
            self._turn(role).parts.append({"text": "", _SIGNATURE: signature})
        return None

    def _add_result(self, part: ToolResult) -> None:
        turn = self._turn(USER)
        if part.call_id in turn.results:
            raise _unmatched(f"the tool call '{part.call_id}' has two results")
        turn.results[part.call_id] = part

    def _turn(self, role: str) -> _Turn:
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(_Turn(role))
        return self.turns[-1]

    def _part(self, part: Part) -> WirePart | None:
        """None for what says nothing."""
        found: dict[str, Any]
        match part:
            case Text() | Refusal():
                if not part.text:
                    return None
                found = {"text": part.text}
            case ToolCall():
                found = {"functionCall": _call_object(part)}
            case Image() | Audio() | Video() | File():
                found = media_part(part)
            case Document():
                found = document_part(part)
            case Opaque() if part.origin == GEMINI:
                return orjson.Fragment(part.raw)
            case Opaque() | Reasoning() | ToolResult():
                kind = type(part).__name__.lower()
                raise UnsupportedParameter(f"messages: Gemini takes no {kind} parts of this kind", param="messages")
            case _:
                assert_never(part)
        _add_fields(found, part.provider_data)
        return found

    def result_part(self, part: ToolResult, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {} if is_minted(part.call_id) else {"id": part.call_id}
        found["name"] = TOOL_NAMES.sent(name)
        data = part.provider_data
        if data is not None and data.origin == GEMINI:
            found.update({key: orjson.Fragment(raw) for key, raw in data.fields.items()})
        found.setdefault("response", _response(part))
        media = [self._part(inner) for inner in part.parts if not isinstance(inner, Text | Refusal)]
        if media:
            found["parts"] = media
        return {"functionResponse": found}


def _instruction(message: Message) -> list[dict[str, Any]]:
    if not all(isinstance(part, Text) for part in message.parts):
        raise UnsupportedParameter(f"messages: a {message.role} message holds text alone", param="messages")
    return [{"text": part.text} for part in message.parts if isinstance(part, Text) and part.text]


def _call_object(call: ToolCall) -> dict[str, Any]:
    text = call.arguments.strip() or "{}"
    try:
        _object.decode(text)
    except (DecodeError, RecursionError) as error:
        raise InvalidRequest(
            f"messages: the arguments of the tool call '{call.id}' are not a JSON object", param="messages"
        ) from error
    found: dict[str, Any] = {} if is_minted(call.id) else {"id": call.id}
    return found | {"name": TOOL_NAMES.sent(call.name), "args": orjson.Fragment(text)}


def _response(result: ToolResult) -> Any:
    """A JSON object as it came; other text in an object, under the name that the API has for it."""
    text = "".join([part.text for part in result.parts if isinstance(part, Text | Refusal)])
    if result.is_error:
        return {"error": text}
    try:
        _object.decode(text)
    except (DecodeError, RecursionError):
        return {"output": text}
    return orjson.Fragment(text)


def _add_fields(found: dict[str, Any], data: ProviderData | None) -> None:
    """Puts unmapped fields back where they stood; a dotted name belongs to the object of that name."""
    if data is None or data.origin != GEMINI:
        return
    for name, raw in data.fields.items():
        outer, dot, inner = name.partition(".")
        (found[outer] if dot else found)[inner or name] = orjson.Fragment(raw)


def _answered(turns: list[_Turn], writer: _Writer) -> list[_Turn]:
    """Every call of a turn is answered in the next one, once, and nothing else is: the results, in their places."""
    calls: dict[str, str] = {}
    for turn in turns:
        for call_id in turn.results:
            if call_id not in calls:
                raise _unmatched(f"the tool result '{call_id}' answers no call of the turn before it")
        for call_id in calls:
            if call_id not in turn.results:
                raise _unmatched(f"the tool call '{call_id}' has no result in the turn after it")
        answers: list[WirePart] = [writer.result_part(turn.results[call_id], name) for call_id, name in calls.items()]
        turn.parts = answers + turn.parts
        calls = turn.calls
    for call_id in calls:
        raise _unmatched(f"the tool call '{call_id}' has no result in the turn after it")
    return [turn for turn in turns if turn.parts]


def _sign_foreign_calls(contents: list[dict[str, Any]]) -> None:
    """Since the user last spoke, the first call of each of the model's turns must be signed."""
    for content in reversed(contents):
        parts = [part for part in content["parts"] if isinstance(part, dict)]
        if content["role"] == USER:
            if any("functionResponse" not in part for part in parts):
                return
            continue
        first = next((part for part in parts if "functionCall" in part), None)
        if first is not None:
            first.setdefault(_SIGNATURE, SKIPPED)


def _unmatched(what: str) -> InvalidRequest:
    return InvalidRequest(f"messages: {what}", param="messages")
