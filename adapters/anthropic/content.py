"""Messages and their content blocks from a client: JSON -> canonical messages.

Unmapped fields stay with the block that they came with, as raw JSON; a block that we do not know stays whole. Both go
back only to this dialect.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Annotated, Literal

import orjson
from msgspec import Meta, Raw
from msgspec.json import Decoder
from msgspec.structs import replace

from adapters.anthropic.citations import is_foreign
from adapters.anthropic.plain_turns import plain_content, plain_turn, plain_turns
from adapters.anthropic.vocabulary import BILLING, MESSAGES
from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import (
    ASSISTANT,
    SYSTEM,
    TOOL,
    USER,
    CacheHint,
    Document,
    File,
    Image,
    MediaSource,
    Message,
    Opaque,
    Part,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    joined_data,
    text_of,
)
from adapters.field_types import BOOL, NAME, SHORT_TEXT, TEXT
from adapters.json_fields import JsonObject, parse_object_at
from adapters.origin_marks import unmarked
from adapters.raw_json import RAW_ITEMS

__all__ = ["Placed", "take_cache", "take_messages", "take_system"]

Placed = tuple[str, Message]
"""A message, and where it stands in the body."""

_CONTENT = Decoder(str | list[Raw])
_ROWS = Decoder(Annotated[list[Raw], Meta(min_length=1)])
_ROLE = Decoder(Literal["user", "assistant", "system"])
_NOTHING = (None, b"null")
_NO_CONTENT: Mapping[str, tuple[bytes | None, ...]] = {
    # An answer may have been empty.
    ASSISTANT: _NOTHING,
    USER: (*_NOTHING, b"[]"),
    SYSTEM: (*_NOTHING, b"[]"),
}
_TTL = Decoder(Literal["5m", "1h"])
_EPHEMERAL = Decoder(Literal["ephemeral"])


def take_messages(body: JsonObject) -> list[Placed]:
    """The turns. One that answers calls becomes a tool message for each answer, then what else the user said."""
    turns = plain_turns(body)
    if turns is not None:
        paths = [f"messages[{i}]" for i in range(len(turns))]
        return _joined(
            [
                (path, each)
                for path, turn in zip(paths, turns, strict=True)
                for each in _turn(turn.role, turn.parts, path)
            ]
        )
    rows = body.take_if("messages", _ROWS)
    if rows is None:
        body.require_objects("messages")  # raises
    paths = [f"messages[{i}]" for i in range(len(rows or ()))]
    return _joined(
        [(path, each) for path, raw in zip(paths, rows or (), strict=True) for each in _messages_in(raw, path)]
    )


def _joined(placed: list[Placed]) -> list[Placed]:
    """Neighbours of one role are one turn, as Anthropic takes them: what the model said in several messages is one, and
    results that the user gave in several stand before all that it said beside them."""
    found: list[Placed] = []
    spoken: list[Placed] = []  # by the model, right before
    said: list[Placed] = []  # by the user, right before
    for each in placed:
        role = each[1].role
        if role != ASSISTANT and spoken:
            found.append(_one_message(spoken))
            spoken = []
        if role not in (USER, TOOL) and said:
            found += said
            said = []
        (spoken if role == ASSISTANT else said if role == USER else found).append(each)
    return [*found, *said, *([_one_message(spoken)] if spoken else ())]


def _one_message(placed: list[Placed]) -> Placed:
    if len(placed) == 1:
        return placed[0]
    path, first = placed[0]
    extras = reduce(joined_data, [message.extras for _, message in placed])
    return path, replace(first, parts=tuple([part for _, message in placed for part in message.parts]), extras=extras)


def take_system(body: JsonObject) -> list[Placed]:
    plain = plain_content(body, "system")
    parts = _content_of(body, "system") if plain is None else plain
    if not all(isinstance(part, Text) for part in parts):
        raise InvalidRequest.at("system", "expected text blocks only")
    if parts and text_of(parts[:1]).startswith(BILLING):
        parts = (_vendors_own(parts[0]), *parts[1:])
    return [("system", Message(role=SYSTEM, parts=parts))] if parts else []


def _vendors_own(part: Part) -> Part:
    """A line for Anthropic's books as what others do not read; with anything else in its block it stays text."""
    line = text_of((part,)).strip()
    if "\n" in line or part != Text(text=line):
        return part
    return Opaque(type=BILLING, raw=orjson.dumps({"type": "text", "text": line}), origin=MESSAGES)


def take_cache(fields: JsonObject) -> CacheHint | None:
    found = fields.take_object("cache_control")
    if found is None:
        return None
    found.require("type", _EPHEMERAL)
    ttl = found.take("ttl", _TTL)
    return CacheHint(ttl=ttl, provider_data=_rest(found))


def _messages_in(raw: Raw, path: str) -> list[Message]:
    plain = plain_turn(raw)
    if plain is not None:
        return _turn(plain.role, plain.parts, path)
    row = parse_object_at(bytes(raw), path)
    role = row.require("role", _ROLE)
    if row.peek_raw("content") in _NO_CONTENT[role] and not (role == SYSTEM and "output_config" in row):
        raise InvalidRequest.at(row.at("content"), "this field is required")
    parts = _content_of(row, "content")
    extras = row.rest()
    return _turn(role, parts, path, ProviderData(MESSAGES, extras) if extras else None)


def _turn(role: str, parts: tuple[Part, ...], path: str, extras: ProviderData | None = None) -> list[Message]:
    if role == USER and any(isinstance(part, ToolResult) for part in parts):
        return _answers(parts, extras)
    if role == ASSISTANT:
        _refuse(parts, (ToolResult,), path, role)
    else:
        _refuse(parts, (ToolCall, Reasoning), path, role)
    return [Message(role=role, parts=parts, extras=extras)]


def _answers(parts: tuple[Part, ...], extras: ProviderData | None) -> list[Message]:
    found: list[Message] = []
    said: list[Part] = []
    for part in parts:
        if isinstance(part, ToolResult):
            found.append(Message(role=TOOL, parts=(part,)))
        else:
            said.append(part)
    if said:
        found.append(Message(role=USER, parts=tuple(said)))
    if extras is not None:
        found[-1] = Message(role=found[-1].role, parts=found[-1].parts, extras=extras)
    return found


def _refuse(parts: tuple[Part, ...], kinds: tuple[type[Part], ...], path: str, role: str) -> None:
    for part in parts:
        if isinstance(part, kinds):
            what = "tool_result" if isinstance(part, ToolResult) else "tool_use or thinking"
            raise InvalidRequest.at(f"{path}.content", f"a {role} message has no {what} blocks")


def _content_of(fields: JsonObject, name: str) -> tuple[Part, ...]:
    """A string, or a list of blocks. Empty text says nothing."""
    content = fields.take(name, _CONTENT)
    if not content:
        return ()
    if isinstance(content, str):
        return (Text(text=content),)
    path = fields.at(name)
    parts = [_parse_block(bytes(raw), f"{path}[{i}]") for i, raw in enumerate(content)]
    return tuple([part for part in parts if not (isinstance(part, Text) and not part.text)])


def _parse_block(raw: bytes, path: str) -> Part:
    block = parse_object_at(raw, path)
    kind = block.require("type", TEXT)
    if kind not in _PARSERS:
        return Opaque(type=kind, raw=raw, origin=MESSAGES)
    return _PARSERS[kind](block, raw)


def _rest(block: JsonObject) -> ProviderData | None:
    return ProviderData(MESSAGES, rest) if (rest := block.said()) else None


def _text(block: JsonObject, raw: bytes) -> Part:
    text = block.require("text", TEXT)
    citations = [bytes(raw) for raw in block.take("citations", RAW_ITEMS) or () if not is_foreign(bytes(raw))]
    return Text(
        text=text,
        annotations=tuple(citations),
        annotated_by=MESSAGES if citations else None,
        cache=take_cache(block),
        provider_data=_rest(block),
    )


def _image(block: JsonObject, raw: bytes) -> Part:
    source = block.require_object("source")
    kind = source.require("type", TEXT)
    found = _media(source, kind)
    if found is None:
        raise InvalidRequest.at(source.at("type"), f"expected base64, url or file, got {kind}")
    return Image(source=found, cache=take_cache(block), provider_data=_rest(block))


def _document(block: JsonObject, raw: bytes) -> Part:
    """A PDF that is nothing but a file is a File, which more targets take; text, titles and citations need Document."""
    source = block.require_object("source")
    kind = source.require("type", TEXT)
    text = source.require("data", TEXT) if kind == "text" else None
    media = None if text is not None else _media(source, kind)
    if text is None and media is None:
        return Opaque(type="document", raw=raw, origin=MESSAGES)
    title, context = block.take("title", TEXT), block.take("context", TEXT)
    citations = block.take_object("citations")
    cited = None if citations is None else citations.take("enabled", BOOL)
    cache, data = take_cache(block), _rest(block)
    if media is not None and context is None and not cited:
        return File(source=media, filename=title, cache=cache, provider_data=data)
    return Document(
        source=media, text=text, title=title, context=context, citations=cited, cache=cache, provider_data=data
    )


def _media(source: JsonObject, kind: str) -> MediaSource | None:
    """None for a kind of source that holds no media."""
    if kind == "base64":
        return MediaSource(data=source.require("data", NAME), media_type=source.require("media_type", NAME))
    if kind == "url":
        return MediaSource(url=source.require("url", NAME))
    if kind == "file":
        return MediaSource(file_id=source.require("file_id", NAME))
    return None


def _thinking(block: JsonObject, raw: bytes) -> Part:
    """Whose it is stands in its mark; without one the origin is unknown."""
    signature, origin = unmarked(block.take("signature", TEXT) or "")
    return Reasoning(
        text=block.take("thinking", TEXT) or "",
        signature=signature or None,
        origin=origin,
        cache=take_cache(block),
        provider_data=_rest(block),
    )


def _redacted_thinking(block: JsonObject, raw: bytes) -> Part:
    encrypted, origin = unmarked(block.require("data", NAME))
    return Reasoning(encrypted=encrypted, origin=origin, cache=take_cache(block), provider_data=_rest(block))


def _tool_use(block: JsonObject, raw: bytes) -> Part:
    """The input is passed on as it came, as text."""
    value = block.take_raw("input")
    path = block.at("input")
    if value is not None and not value.startswith(b"{"):
        raise InvalidRequest.at(path, "expected an object")
    return ToolCall(
        id=block.require("id", NAME),
        name=block.require("name", SHORT_TEXT),
        arguments="{}" if value is None else value.decode(),
        cache=take_cache(block),
        provider_data=_rest(block),
    )


def _tool_result(block: JsonObject, raw: bytes) -> Part:
    return ToolResult(
        call_id=block.require("tool_use_id", NAME),
        parts=_content_of(block, "content"),
        is_error=block.take("is_error", BOOL),
        cache=take_cache(block),
        provider_data=_rest(block),
    )


_PARSERS = {
    "text": _text,
    "image": _image,
    "document": _document,
    "thinking": _thinking,
    "redacted_thinking": _redacted_thinking,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
}
