"""The conversation towards Gemini: canonical messages -> the system instruction and contents.

Parts are neither joined nor moved; the results of a turn's calls stand in the order of the calls. Signatures go back to
the provider that made them, in the part that they came with; a call that another model made gets the placeholder that
the API has for it.
"""

from collections.abc import Iterator
from typing import Any, assert_never

import orjson
from msgspec import DecodeError

from adapters.alternating_turns import Block, alternating_turns, parted, texts_in
from adapters.call_objects import arguments_object
from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import (
    ASSISTANT,
    USER,
    Audio,
    Document,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from adapters.canonical.request import Request
from adapters.gemini.media import document_parts, media_part
from adapters.gemini.signatures import SKIPPED, Place, place_of, signature_in_chat, signs_next
from adapters.gemini.thinking import is_third_generation
from adapters.gemini.vocabulary import GEMINI, TOOL_NAMES
from adapters.minted_ids import is_minted
from adapters.raw_json import fragments, put_back, raw_fields

__all__ = ["contents_of"]

_MODEL = "model"
_ROLES = {ASSISTANT: _MODEL, USER: USER}
_SIGNATURE = "thoughtSignature"
_SIGNED = (ToolCall, Image, Audio, Video)


def contents_of(request: Request, provider: str) -> tuple[list[Block], list[dict[str, Any]]]:
    """The parts of the system instruction, and the contents. `provider` is the name of the one that is asked.

    Raises InvalidRequest for results and calls that do not belong together, naming the id.
    """
    leading, rest = parted(request.messages or ())
    writer = _Writer(request.dialect, provider)
    system = [writer.text(part.text) for message in leading for part in texts_in(message) if part.text]
    contents: list[dict[str, Any]] = []
    calls: list[str] = []
    for turn in alternating_turns(rest, writer):
        results = [block for call_id in calls for block in turn.results[call_id]]
        contents.append({"role": _ROLES[turn.role], "parts": results + turn.blocks})
        calls = turn.calls
    if is_third_generation(request.model):
        _sign_foreign_calls(contents)
    return system, contents


class _Writer:
    """Signatures go into the part that they sign, which is the one after their thought, or one of their own."""

    vendor = "Gemini"

    def __init__(self, dialect: str, provider: str) -> None:
        self._dialect = dialect
        self._provider = provider
        self._called: dict[str, str] = {}
        """The name of each tool that was called, by the call's id."""

    def text(self, text: str) -> Block:
        return {"text": text}

    def written(self, message: Message) -> Iterator[tuple[Part, list[Block]]]:
        signature: str | None = None
        for number, part in enumerate(message.parts):
            if isinstance(part, Reasoning):
                following = message.parts[number + 1] if number + 1 < len(message.parts) else None
                thoughts, signature = self._thought(part, following)
                yield part, thoughts
                continue
            if isinstance(part, Document):
                yield part, [*document_parts(part)]
                continue
            found = self._part(part)
            if found is None:
                continue
            if signature is None and isinstance(part, ToolCall):
                signature = signature_in_chat(part, self._provider)
            if signature is not None and isinstance(found, dict):
                found[_SIGNATURE] = signature
            signature = None
            yield part, [found]

    def _thought(self, part: Reasoning, following: Part | None) -> tuple[list[Block], str | None]:
        """What was thought, where it is this provider's, and the signature of the part that follows."""
        is_own = part.origin == self._provider or (part.origin is None and self._dialect == GEMINI)
        if not is_own:
            return [], None
        signature = part.signature
        blocks: list[Block] = []
        if part.text and self._dialect == GEMINI:
            thought: dict[str, Any] = {"text": part.text, "thought": True}
            if signature is not None and place_of(part.provider_data) is Place.THOUGHT:
                thought[_SIGNATURE], signature = signature, None
            blocks.append(thought)
        if isinstance(following, _SIGNED) and signs_next(part):
            return blocks, signature
        if signature is not None:
            blocks.append({"text": "", _SIGNATURE: signature})
        return blocks, None

    def _part(self, part: Part) -> Block | None:
        """None for what says nothing."""
        found: dict[str, Any]
        match part:
            case Text() | Refusal():
                if not part.text:
                    return None
                found = {"text": part.text}
            case ToolCall():
                self._called[part.id] = part.name
                found = {"functionCall": _call_object(part)}
            case ToolResult():
                return self._result(part, self._called.get(part.call_id, ""))
            case Image() | Audio() | Video() | File():
                found = media_part(part)
            case Opaque() if part.origin == GEMINI:
                return orjson.Fragment(part.raw)
            case Opaque() | Reasoning() | Document():
                kind = type(part).__name__.lower()
                raise UnsupportedParameter.at("messages", f"Gemini takes no {kind} parts")
            case _:
                assert_never(part)
        if part.provider_data is not None and part.provider_data.origin == GEMINI:
            put_back(found, part.provider_data.fields)
        return found

    def _result(self, part: ToolResult, name: str) -> Block:
        found: dict[str, Any] = {} if is_minted(part.call_id) else {"id": part.call_id}
        found["name"] = TOOL_NAMES.sent(name)
        data = part.provider_data
        if data is not None and data.origin == GEMINI:
            found.update(fragments(data.fields))
        found.setdefault("response", _response(part))
        media: list[Block | None] = []
        for inner in part.parts:
            if isinstance(inner, Document):
                media += document_parts(inner)
            elif not isinstance(inner, Text | Refusal):
                media.append(self._part(inner))
        if media:
            found["parts"] = media
        return {"functionResponse": found}


def _call_object(call: ToolCall) -> dict[str, Any]:
    found: dict[str, Any] = {} if is_minted(call.id) else {"id": call.id}
    return found | {"name": TOOL_NAMES.sent(call.name), "args": arguments_object(call)}


def _response(result: ToolResult) -> Any:
    """A JSON object as it came; other text in an object, under the name that the API has for it."""
    text = "".join([part.text for part in result.parts if isinstance(part, Text | Refusal)])
    if result.is_error:
        return {"error": text}
    try:
        raw_fields(text)
    except (DecodeError, RecursionError):
        return {"output": text}
    return orjson.Fragment(text)


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
