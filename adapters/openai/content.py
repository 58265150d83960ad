"""Chat messages and their content parts, both ways: JSON <-> canonical messages.

Unmapped fields stay with the message or part that they came with, as raw JSON, and go back only to OpenAI's dialect.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Annotated, Any, assert_never

import orjson
from msgspec import Meta, Raw
from msgspec.json import Decoder
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import (
    ASSISTANT,
    TOOL,
    Audio,
    Document,
    File,
    Image,
    MediaSource,
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
    as_plain_parts,
    joined_data,
    told_parts,
)
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION
from adapters.field_types import NAME, RAW_OBJECT, TEXT
from adapters.inline_media import data_url
from adapters.json_fields import JsonObject, parse_object_at
from adapters.openai.cache_fields import cache_hint
from adapters.openai.flat_media import DOCUMENT, parse_flat
from adapters.openai.plain_messages import plain_message, plain_messages
from adapters.openai.signed_reasoning import parse_signed, placed
from adapters.openai.vocabulary import CHAT, arguments_field
from adapters.raw_json import RAW_ITEMS, put_back
from adapters.thought_text import thought_text

__all__ = [
    "REASONING_DETAILS",
    "message_object",
    "parse_message",
    "parse_messages",
    "reasoning_details",
]

REASONING_DETAILS = "reasoning_details"


_CONTENT = Decoder(str | list[Raw])


_IMAGES = "images"
_INSTEAD = frozenset(("refusal", "audio", _IMAGES))
"""What an answer without text may say."""
_NOTHING = (None, b"null", b"[]", b'""')
_ROWS = Decoder(Annotated[list[Raw], Meta(min_length=1)])


def parse_messages(body: JsonObject) -> tuple[Message, ...]:
    """Each goes the short way where it can."""
    plain = plain_messages(body)
    if plain is not None:
        return plain
    rows = body.take_if("messages", _ROWS)
    if rows is None:
        return tuple([parse_message(row) for row in body.require_objects("messages")])  # raises
    return tuple([plain_message(raw) or _parse_row(raw, f"messages[{i}]") for i, raw in enumerate(rows)])


def _parse_row(raw: Raw, path: str) -> Message:
    return parse_message(parse_object_at(raw, path))


def parse_message(row: JsonObject) -> Message:
    """One message of chat."""
    role = row.require("role", NAME)
    called = row.take_raw("function_call") is not None
    if role == FUNCTION or called:
        path = row.at("function_call" if called else "role")
        raise UnsupportedParameter.at(path, "the legacy function form is not taken; use tool calls")
    parts: list[Part] = []
    signed = _parse_reasoning(row, parts) if role == ASSISTANT else None
    content = _take_content(row, role, thought=bool(parts or signed))
    name = row.take("name", TEXT)
    if isinstance(content, str):
        parts.append(Text(text=content))
    elif content:
        path = row.at("content")
        parts.extend([_parse_part(bytes(raw), f"{path}[{i}]") for i, raw in enumerate(content)])
    if role == TOOL:
        parts = [ToolResult(call_id=row.require("tool_call_id", NAME), parts=tuple(parts))]
    elif role == ASSISTANT:
        _parse_assistant(row, parts)
        if signed:
            placed(parts, signed)
    cache = cache_hint(row)
    if (
        cache is not None and parts and not isinstance(parts[-1], Opaque)
    ):  # of the message, which ends with its last part
        parts[-1] = replace(parts[-1], cache=cache)
    extras = row.rest()
    return Message(role=role, parts=tuple(parts), name=name, extras=ProviderData(CHAT, extras) if extras else None)


def _take_content(row: JsonObject, role: str, *, thought: bool) -> str | list[Raw] | None:
    """An empty text says nothing, but is content. Only an answer may be without: beside what else it says, or as null,
    which is how an empty answer comes back."""
    is_null = row.peek_raw("content") == b"null"
    content = row.take("content", _CONTENT)
    if content or isinstance(content, str):
        return content or None
    path = row.at("content")
    if role != ASSISTANT and content is not None:
        raise InvalidRequest.at(path, "the list must not be empty")
    if role != ASSISTANT or not (is_null or thought or _says_more(row)):
        raise InvalidRequest.at(path, "this field is required")
    return None


def _says_more(row: JsonObject) -> bool:
    return any(row.peek_raw(name) not in _NOTHING for name in ("tool_calls", "refusal", "audio", _IMAGES))


def _parse_reasoning(row: JsonObject, parts: list[Part]) -> list[tuple[int, Reasoning]] | None:
    """`reasoning_content` and `reasoning` are two spellings of one field; details are opaque.

    Details of thoughts that a provider signed hold their text as well: they are given back, to be put in their places.
    """
    text = row.take("reasoning_content", TEXT)
    other = row.take("reasoning", TEXT)
    details = row.take_raw(REASONING_DETAILS)
    signed = None if details is None else parse_signed(details)
    if signed is not None:
        return signed
    text = text or other
    if text or details:
        data = None if details is None else ProviderData(CHAT, {REASONING_DETAILS: details})
        parts.append(Reasoning(text=text or "", provider_data=data))
    return None


def _parse_assistant(row: JsonObject, parts: list[Part]) -> None:
    refusal = row.take("refusal", TEXT)
    if refusal:
        parts.append(Refusal(text=refusal))
    audio = row.take_object("audio")
    if audio is not None:
        parts.append(Audio(source=MediaSource(), id=audio.require("id", NAME), provider_data=_rest(audio, audio)))
    _parse_images(row, parts)
    for call in row.take_objects("tool_calls") or ():
        parts.append(_parse_call(call))
    _parse_annotations(row, parts)


def _parse_images(row: JsonObject, parts: list[Part]) -> None:
    """Images that the model made, as its message told of them; each stays as it came for servers of this dialect."""
    for raw in row.take(_IMAGES, RAW_ITEMS) or ():
        image = _parse_part(bytes(raw), row.at(_IMAGES))
        if not isinstance(image, Image):
            raise InvalidRequest.at(row.at(_IMAGES), "expected parts of the type image_url")
        parts.append(replace(image, provider_data=ProviderData(CHAT, {_IMAGES: bytes(raw)})))


def _parse_annotations(row: JsonObject, parts: list[Part]) -> None:
    """They stand in every message that a client plays back, and belong to its last text."""
    raw = row.peek_raw("annotations")
    last = next((place for place in reversed(range(len(parts))) if isinstance(parts[place], Text)), None)
    if raw in (b"null", b"[]"):
        row.take_raw("annotations")
    elif raw is not None and last is not None:
        notes = tuple([bytes(note) for note in row.take("annotations", RAW_ITEMS) or ()])
        parts[last] = replace(parts[last], annotations=notes, annotated_by=CHAT)


def _parse_call(call: JsonObject) -> ToolCall:
    call_id = call.require("id", NAME)
    kind = call.take("type", TEXT) or FUNCTION
    if kind not in (FUNCTION, CUSTOM):
        raise InvalidRequest.at(call.at("type"), f"expected {FUNCTION} or {CUSTOM}, got {kind}")
    inner = call.require_object(kind)
    arguments = inner.take_if(arguments_field(kind), RAW_OBJECT) if kind == FUNCTION else None  # Mistral's clients
    return ToolCall(
        id=call_id,
        name=inner.require("name", NAME),
        arguments=arguments.decode() if arguments else inner.take(arguments_field(kind), TEXT) or "",
        kind=kind,
        provider_data=_rest(call, inner),
    )


def _parse_part(raw: bytes, path: str) -> Part:
    part = parse_object_at(raw, path)
    kind = part.require("type", TEXT)
    flat = parse_flat(part, kind)
    if flat is not None:
        return flat
    match kind:
        case "text":
            return Text(text=part.require("text", TEXT), cache=cache_hint(part), provider_data=_rest(part))
        case "refusal":
            return Refusal(text=part.require("refusal", TEXT), provider_data=_rest(part))
        case "image_url":
            image = part.require_object(kind)
            source = MediaSource(url=image.require("url", TEXT))
            detail, cache = image.take("detail", TEXT), cache_hint(part)
            return Image(source=source, detail=detail, cache=cache, provider_data=_rest(part, image))
        case "video_url":
            video = part.require_object(kind)
            return Video(source=MediaSource(url=video.require("url", TEXT)), provider_data=_rest(part, video))
        case "input_audio":
            audio = part.require_object(kind)
            source = MediaSource(data=audio.require("data", TEXT))
            return Audio(source=source, format=audio.take("format", TEXT), provider_data=_rest(part, audio))
        case "file":
            file = part.require_object(kind)
            source = MediaSource(data=file.take("file_data", TEXT), file_id=file.take("file_id", TEXT))
            name, cache = file.take("filename", TEXT), cache_hint(part)
            return File(source=source, filename=name, cache=cache, provider_data=_rest(part, file))
        case "thinking":
            return Reasoning(text=_thought(part))
        case _:
            return Opaque(type=kind, raw=raw, origin=CHAT)


def _thought(part: JsonObject) -> str:
    """What Mistral's models thought: a text, or parts that are text."""
    said = part.take_if("thinking", TEXT)
    return (
        said if said is not None else "".join([each.require("text", TEXT) for each in part.require_objects("thinking")])
    )


def _rest(outer: JsonObject, inner: JsonObject | None = None) -> ProviderData | None:
    """What nobody took of an object and, with a prefix, of the object of its kind inside it."""
    fields = {} if outer is inner else outer.rest()
    if inner is not None:
        kind = inner.path.rpartition(".")[2]
        fields.update({f"{kind}.{name}": raw for name, raw in inner.rest().items()})
    return ProviderData(CHAT, fields) if fields else None


def reasoning_details(data: ProviderData | None) -> orjson.Fragment | None:
    """The details of a reasoning part, when they are of this dialect."""
    if data is None or data.origin != CHAT or REASONING_DETAILS not in data.fields:
        return None
    return orjson.Fragment(data.fields[REASONING_DETAILS])


def message_object(message: Message) -> list[dict[str, Any]]:
    """The message as OpenAI's JSON: one object, or one for each tool result."""
    found: dict[str, Any]
    parts = message.parts
    first = parts[0] if len(parts) == 1 and message.name is None else None
    if type(first) is Text and first.provider_data is None and first.annotated_by is None:
        found = {"role": message.role, "content": first.text}  # what nearly all messages are
        _add_fields(found, message.extras)
        return [found]
    if message.role == TOOL:
        return [_tool_message(message, part) for part in message.parts if isinstance(part, ToolResult)]
    found = {"role": message.role}
    content: list[Part] = []
    thought: list[Reasoning] = []
    calls = []
    for part in message.parts:
        match part:
            case ToolCall():
                calls.append(_call_object(part))
            case Reasoning():
                thought.append(part)
            case Image() if part.provider_data is not None and _IMAGES in part.provider_data.fields:
                found.setdefault(_IMAGES, []).append(orjson.Fragment(part.provider_data.fields[_IMAGES]))
            case Audio() if part.id is not None:
                found["audio"] = {"id": part.id}
                _add_fields(found, part.provider_data)
            case _:
                content.append(part)
    if thought:
        _add_reasoning(found, thought)
    if content and message.role == ASSISTANT:
        last = content[-1]
        if isinstance(last, Refusal) and last.provider_data is None:
            found["refusal"] = last.text
            content.pop()
    nothing = None if calls or found.keys() & _INSTEAD else ""
    found["content"] = _content(content, empty=nothing)
    if message.name is not None:
        found["name"] = message.name
    own = [part.annotations for part in content if isinstance(part, Text) and part.annotated_by == CHAT]
    if own:
        found["annotations"] = [orjson.Fragment(raw) for notes in own for raw in notes]
    if calls:
        found["tool_calls"] = calls
    _add_fields(found, message.extras)
    return [found]


def _add_reasoning(found: dict[str, Any], thought: list[Reasoning]) -> None:
    text = "".join(map(thought_text, thought))
    if text:
        found["reasoning_content"] = text
    own = [part.provider_data for part in thought if part.provider_data and part.provider_data.origin == CHAT]
    _add_fields(found, reduce(joined_data, own, None))


def _tool_message(message: Message, result: ToolResult) -> dict[str, Any]:
    content = _content(told_parts(result), empty="")
    found: dict[str, Any] = {"role": TOOL, "tool_call_id": result.call_id, "content": content}
    if message.name is not None:
        found["name"] = message.name
    _add_fields(found, message.extras)
    return found


def _content(parts: Sequence[Part], *, empty: str | None) -> Any:
    """One plain text is a string, as the oldest servers expect; anything else a list of parts."""
    if not parts:
        return empty
    if len(parts) == 1:
        only = parts[0]
        if isinstance(only, Text) and only.text and only.provider_data is None:
            return only.text
    return [_part_object(plain) for part in parts for plain in as_plain_parts(part)]


def _part_object(part: Part) -> Any:
    found: dict[str, Any]
    match part:
        case Text():
            found = {"type": "text", "text": part.text}
        case Refusal():
            found = {"type": "refusal", "refusal": part.text}
        case Image():
            image = {"url": data_url(_inline(part.source), "image/png")}
            found = {"type": "image_url", "image_url": image}
            if part.detail is not None:
                image["detail"] = part.detail
        case Video():
            found = {"type": "video_url", "video_url": {"url": data_url(part.source, "video/mp4")}}
        case Audio():
            if part.source.url is not None:
                raise UnsupportedParameter.at("messages", "sound by URL has no place in chat")
            audio = {"data": part.source.data, "format": part.format}
            found = {"type": "input_audio", "input_audio": {k: v for k, v in audio.items() if v is not None}}
        case File():
            source = part.source
            if part.provider_data is not None and DOCUMENT in part.provider_data.fields:
                found = {"type": DOCUMENT}
                _add_fields(found, part.provider_data)
                return found
            if source.url is not None:
                raise UnsupportedParameter.at("messages", "a file by URL has no place in chat")
            typed = source.data is not None and source.media_type is not None
            data = data_url(source, "") if typed else source.data
            file = {"file_id": source.file_id, "file_data": data, "filename": part.filename}
            found = {"type": "file", "file": {k: v for k, v in file.items() if v is not None}}
        case Opaque() if part.origin == CHAT:
            return orjson.Fragment(part.raw)
        case Opaque() | Document() | Reasoning() | ToolCall() | ToolResult():
            kind = type(part).__name__
            raise UnsupportedParameter.at("messages", f"a part of kind {kind} has no place in chat")
        case _:
            assert_never(part)
    _add_fields(found, part.provider_data)
    return found


def _inline(source: MediaSource) -> MediaSource:
    if source.file_id is not None:
        raise UnsupportedParameter.at("messages", "an image by its file's id has no place in chat")
    return source


def _call_object(call: ToolCall) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": call.id,
        "type": call.kind,
        call.kind: {"name": call.name, arguments_field(call.kind): call.arguments},
    }
    _add_fields(found, call.provider_data)
    return found


def _add_fields(found: dict[str, Any], data: ProviderData | None) -> None:
    if data is not None and data.origin == CHAT:
        put_back(found, data.fields)
