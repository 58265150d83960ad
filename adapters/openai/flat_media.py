"""Media of messages as Mistral spells them, both ways: texts beside the type of their part, where OpenAI has an object.

{"type": "image_url", "image_url": "https://..."}           {"type": "input_audio", "input_audio": "BASE64"}
{"type": "document_url", "document_url": "https://..."}     {"type": "file", "file_id": "..."}
"""

from typing import Any

import orjson
from msgspec.structs import replace

from adapters.canonical.messages import Audio, File, Image, MediaSource, Opaque, Part, ProviderData, ToolResult
from adapters.canonical.request import Request
from adapters.field_types import NAME, TEXT
from adapters.inline_media import audio_format, data_url
from adapters.json_fields import JsonObject
from adapters.openai.vocabulary import CHAT

__all__ = ["DOCUMENT", "parse_flat", "with_flat_media"]

DOCUMENT = "document_url"
_NAME = "document_name"
_FILE_ID = "file_id"
_SAID = ("image_url", "input_audio", DOCUMENT)
_WEB = ("http://", "https://")


def parse_flat(part: JsonObject, kind: str) -> Image | Audio | File | None:
    """None for a part that is not spelled so. A document stays as it came for servers of this dialect."""
    if kind == "file":
        file_id = part.take_if(_FILE_ID, NAME)
        return None if file_id is None else File(source=MediaSource(file_id=file_id))
    said = part.take_if(kind, NAME) if kind in _SAID else None
    if said is None:
        return None
    match kind:
        case "image_url":
            return Image(source=MediaSource(url=said), detail=part.take("detail", TEXT))
        case "input_audio" if said.startswith(_WEB):
            return Audio(source=MediaSource(url=said))
        case "input_audio":
            return Audio(source=MediaSource(data=said), format=audio_format(said))
        case _:
            name = part.take(_NAME, TEXT)
            told = {DOCUMENT: said} if name is None else {DOCUMENT: said, _NAME: name}
            own = ProviderData(CHAT, {key: orjson.dumps(value) for key, value in told.items()})
            return File(source=MediaSource(url=said), filename=name, provider_data=own)


def with_flat_media(request: Request) -> Request:
    """Sound and files as a server has them that knows this spelling alone."""
    found = [replace(each, parts=tuple([_flat(part) for part in each.parts])) for each in request.messages or ()]
    return replace(request, messages=tuple(found))


def _flat(part: Part) -> Part:
    source: MediaSource
    match part:
        case ToolResult():
            return replace(part, parts=tuple([_flat(each) for each in part.parts]))
        case Audio(id=None, source=source):
            return _part("input_audio", input_audio=source.url or source.data)
        case File(source=source) if source.file_id is not None:
            return _part("file", file_id=source.file_id)
        case File(source=source):
            named = {} if part.filename is None else {_NAME: part.filename}
            url = data_url(source, "application/pdf") if source.media_type or source.url else source.data
            return _part(DOCUMENT, document_url=url, **named)
        case _:
            return part


def _part(kind: str, **fields: Any) -> Opaque:
    return Opaque(type=kind, raw=orjson.dumps({"type": kind, **fields}), origin=CHAT)
