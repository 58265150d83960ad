"""The conversation towards Ollama: canonical messages -> its own, with text as one string and images beside it."""

from typing import Any, assert_never

from adapters.call_objects import arguments_object
from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import (
    ASSISTANT,
    DEVELOPER,
    SYSTEM,
    TOOL,
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
    plain_parts,
)
from adapters.canonical.request import Request
from adapters.inline_media import resolved
from adapters.minted_ids import is_minted
from adapters.ollama.vocabulary import CHAT
from adapters.raw_json import fragments
from adapters.thought_text import thought_text

__all__ = ["image_data", "message_objects"]

_ROLES = {SYSTEM: SYSTEM, DEVELOPER: SYSTEM, USER: USER, ASSISTANT: ASSISTANT}
_PARAM = "messages"


def message_objects(request: Request, provider: str) -> list[dict[str, Any]]:
    """`provider` is the name of the one that is asked: what another one thought stays here."""
    found: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in request.messages or ():
        names.update({part.id: part.name for part in message.parts if isinstance(part, ToolCall)})
        if message.role == TOOL:
            found += [_result(part, names) for part in message.parts if isinstance(part, ToolResult)]
            continue
        role = _ROLES.get(message.role)
        if role is None:
            raise UnsupportedParameter.at(_PARAM, f"Ollama has no role {message.role}")
        found.append(_message(message, role, provider))
    return found


def _message(message: Message, role: str, provider: str) -> dict[str, Any]:
    texts: list[str] = []
    images: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case ToolCall():
                calls.append(_call(part))
            case Reasoning():
                if part.origin in (None, provider):
                    thoughts.append(thought_text(part))
            case _:
                _sort(part, texts, images)
    text = ("" if role == ASSISTANT else "\n").join(texts)
    if message.name is not None and role == USER and text:
        text = f"{message.name}: {text}"
    found: dict[str, Any] = {"role": role, "content": text}
    if any(thoughts):
        found["thinking"] = "".join(thoughts)
    if images:
        found["images"] = images
    if calls:
        found["tool_calls"] = calls
    if message.extras is not None and message.extras.origin == CHAT:
        found.update(fragments(message.extras.fields))
    return found


def _sort(part: Part, texts: list[str], images: list[str]) -> None:
    """Text to the texts, images to the images. Raises UnsupportedParameter for anything else."""
    match part:
        case Text() | Refusal():
            if part.text:
                texts.append(part.text)
        case Document() if (plain := plain_parts(part)) is not None:
            for inner in plain:
                _sort(inner, texts, images)
        case Image():
            images.append(image_data(part))
        case Audio() | Video() | File() | Document() | Opaque() | Reasoning() | ToolCall() | ToolResult():
            kind = type(part).__name__.lower()
            raise UnsupportedParameter.at(_PARAM, f"Ollama takes no {kind} parts")
        case _:
            assert_never(part)


def image_data(image: Image) -> str:
    """The picture as base64, the only form that Ollama takes."""
    source = resolved(image.source)
    if source.data is None:
        raise UnsupportedParameter.at(_PARAM, "Ollama takes images as data, not by address")
    return source.data


def _call(call: ToolCall) -> dict[str, Any]:
    found: dict[str, Any] = {} if is_minted(call.id) else {"id": call.id}
    return found | {"function": {"name": call.name, "arguments": arguments_object(call)}}


def _result(result: ToolResult, names: dict[str, str]) -> dict[str, Any]:
    texts: list[str] = []
    images: list[str] = []
    for part in result.parts:
        _sort(part, texts, images)
    text = "\n".join(texts)
    found: dict[str, Any] = {"role": TOOL, "content": f"Error: {text}" if result.is_error else text}
    if result.call_id in names:
        found["tool_name"] = names[result.call_id]
    if not is_minted(result.call_id):
        found["tool_call_id"] = result.call_id
    if images:
        found["images"] = images
    return found
