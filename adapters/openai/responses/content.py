"""Content parts of messages and of tools' outputs, both ways: JSON <-> canonical parts.

Unmapped fields stay with the part that they came with, as raw JSON, and go back only to this dialect.
"""

from collections.abc import Sequence
from typing import Any, assert_never

import orjson

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import (
    Audio,
    Document,
    File,
    Image,
    MediaSource,
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
)
from adapters.field_types import TEXT
from adapters.inline_media import data_url
from adapters.json_fields import JsonObject
from adapters.openai.cache_fields import cache_hint
from adapters.openai.vocabulary import RAW_LIST, RESPONSES
from adapters.raw_json import RAW_ITEMS, add_missing

__all__ = [
    "NAMESPACE",
    "add_own_fields",
    "content_objects",
    "named_namespace",
    "own_fields",
    "parse_content",
    "texts_in",
]

NAMESPACE = "namespace"
"""Field of a call: the group of tools that its tool is in."""
_TEXTS = ("input_text", "output_text", "text")


def parse_content(item: JsonObject, name: str) -> tuple[Part, ...]:
    """The parts of a field that is text or a list of parts; none where it is absent or says nothing."""
    text = item.take_if(name, TEXT)
    if text is not None:
        return (Text(text=text),) if text else ()
    rows = item.take_objects(name)
    return tuple([_parse_part(part) for part in rows or ()])


def texts_in(item: JsonObject, name: str, kind: str) -> list[str]:
    """The texts of a list of parts that are all of one kind (`summary_text`, `reasoning_text`)."""
    found: list[str] = []
    for part in item.take_objects(name) or ():
        if part.require("type", TEXT) != kind:
            raise InvalidRequest.at(part.at("type"), f"expected {kind}")
        found.append(part.require("text", TEXT))
    return found


def _parse_part(part: JsonObject) -> Part:
    kind = part.require("type", TEXT)
    if kind in _TEXTS:
        text = part.require("text", TEXT)
        notes = RAW_ITEMS.decode(part.take("annotations", RAW_LIST) or b"[]")
        part.take_raw("logprobs")  # of the answer that is played back
        return Text(
            text=text,
            annotations=tuple([bytes(note) for note in notes]),
            annotated_by=RESPONSES if notes else None,
            cache=cache_hint(part),
            provider_data=own_fields(part),
        )
    match kind:
        case "refusal":
            return Refusal(text=part.require("refusal", TEXT), provider_data=own_fields(part))
        case "input_image":
            source = MediaSource(url=part.take("image_url", TEXT), file_id=part.take("file_id", TEXT))
            if source.url is None and source.file_id is None:
                raise InvalidRequest.at(part.path, "expected image_url or file_id")
            detail, cache = part.take("detail", TEXT), cache_hint(part)
            return Image(source=source, detail=detail, cache=cache, provider_data=own_fields(part))
        case "input_file":
            source = MediaSource(
                url=part.take("file_url", TEXT), data=part.take("file_data", TEXT), file_id=part.take("file_id", TEXT)
            )
            name, cache = part.take("filename", TEXT), cache_hint(part)
            return File(source=source, filename=name, cache=cache, provider_data=own_fields(part))
        case "input_audio":
            inner = part.require_object(kind)
            audio = Audio(source=MediaSource(data=inner.require("data", TEXT)), format=inner.take("format", TEXT))
            inner.refuse_rest()
            return audio
        case _:
            words = "input_text, input_image, input_file, input_audio, output_text or refusal"
            raise InvalidRequest.at(part.at("type"), f"expected {words}, got {kind[:100]}")


def own_fields(found: JsonObject) -> ProviderData | None:
    """What nobody took. Null is the same as absent."""
    return ProviderData(RESPONSES, fields) if (fields := found.said()) else None


def named_namespace(data: ProviderData | None) -> str | None:
    """The group of tools that a call names itself."""
    if data is None or data.origin != RESPONSES or NAMESPACE not in data.fields:
        return None
    return str(orjson.loads(data.fields[NAMESPACE]))


def content_objects(parts: Sequence[Part], *, output: bool) -> list[dict[str, Any]]:
    """`output`: what the model itself said, rather than what it was given."""
    return [_part_object(plain, output=output) for part in parts for plain in as_plain_parts(part)]


def _part_object(part: Part, *, output: bool) -> dict[str, Any]:
    found: dict[str, Any]
    match part:
        case Text() if output:
            notes = part.annotations if part.annotated_by == RESPONSES else ()
            found = {"type": "output_text", "text": part.text, "annotations": [orjson.Fragment(n) for n in notes]}
        case Text():
            found = {"type": "input_text", "text": part.text}
        case Refusal() if output:
            found = {"type": "refusal", "refusal": part.text}
        case Refusal():
            found = {"type": "input_text", "text": part.text}
        case Image() if not output:
            source = part.source
            found = {"type": "input_image", "detail": part.detail or "auto"}
            if source.file_id is not None:
                found["file_id"] = source.file_id
            else:
                found["image_url"] = data_url(source, "image/png")
        case File() if not output:
            found = {"type": "input_file", **_file_fields(part.source)}
            if part.filename is not None:
                found["filename"] = part.filename
        case Audio() if not output and part.source.data is not None:
            audio = {"data": part.source.data, "format": part.format}
            found = {"type": "input_audio", "input_audio": {k: v for k, v in audio.items() if v is not None}}
        case Image() | File() | Audio() | Document() | Video() | Opaque() | Reasoning() | ToolCall() | ToolResult():
            kind = type(part).__name__
            raise UnsupportedParameter.at("input", f"a part of kind {kind} has no place here")
        case _:
            assert_never(part)
    add_own_fields(found, part.provider_data)
    return found


def _file_fields(source: MediaSource) -> dict[str, str]:
    if source.file_id is not None:
        return {"file_id": source.file_id}
    if source.url is not None:
        return {"file_url": source.url}
    typed = source.data is not None and source.media_type is not None
    return {"file_data": data_url(source, "") if typed else source.data or ""}


def add_own_fields(found: dict[str, Any], data: ProviderData | None) -> None:
    """Puts unmapped fields of this dialect back where they stood."""
    if data is not None and data.origin == RESPONSES:
        add_missing(found, data.fields)
