"""Media both ways: a part's `inlineData` and `fileData`, and images, audio, video and files."""

import re
from typing import Any

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import (
    Audio,
    Document,
    File,
    Image,
    MediaSource,
    Part,
    ProviderData,
    Text,
    Video,
    plain_parts,
)
from adapters.inline_media import resolved

__all__ = ["document_parts", "is_file_uri", "media_part", "parse_media"]

_BY_SUFFIX = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
    "json": "application/json",
    "mp3": "audio/mp3",
    "wav": "audio/wav",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "mp4": "video/mp4",
    "mov": "video/mov",
    "webm": "video/webm",
}
_MESSAGES = "messages"
_READ_BY_GEMINI = re.compile(
    r"https://(?:generativelanguage\.googleapis\.com|(?:www\.)?youtube\.com|youtu\.be)/", re.IGNORECASE
)


def parse_media(source: MediaSource, name: str | None, data: ProviderData | None) -> Part:
    """The part for media of this type."""
    kind, _, subtype = (source.media_type or "").partition("/")
    match kind:
        case "image":
            return Image(source=source, provider_data=data)
        case "audio":
            return Audio(source=source, format={"mpeg": "mp3"}.get(subtype, subtype) or None, provider_data=data)
        case "video":
            return Video(source=source, provider_data=data)
        case _:
            return File(source=source, filename=name, provider_data=data)


def media_part(part: Image | Audio | Video | File) -> dict[str, Any]:
    """Data as they are, by the type that their bytes tell; an address as a file's."""
    source = resolved(part.source)
    media_type = source.media_type or _type_of(part, source)
    if source.data is not None:
        if media_type is None:
            raise InvalidRequest("messages: a file whose type is not known", param=_MESSAGES)
        return {"inlineData": {"mimeType": media_type, "data": source.data}}
    if source.url is None:
        raise UnsupportedParameter("messages: Gemini knows no file of this id", param=_MESSAGES)
    file = {"fileUri": source.url}
    return {"fileData": file if media_type is None else {"mimeType": media_type, **file}}


def is_file_uri(url: str) -> bool:
    """Whether Gemini reads the file itself: one of its Files API, or a film of YouTube."""
    return _READ_BY_GEMINI.match(url) is not None


def document_parts(document: Document) -> list[dict[str, Any]]:
    plain = plain_parts(document)
    if plain is None:
        raise UnsupportedParameter("messages: Gemini does not cite documents", param=_MESSAGES)
    return [{"text": part.text} if isinstance(part, Text) else media_part(part) for part in plain]


def _type_of(part: Image | Audio | Video | File, source: MediaSource) -> str | None:
    """What a name or the kind of part says of media whose bytes say nothing; None where nothing is known."""
    if isinstance(part, Audio) and part.format is not None:
        return _BY_SUFFIX.get(part.format, f"audio/{part.format}")
    name = part.filename if isinstance(part, File) and part.filename is not None else (source.url or "")
    known = _BY_SUFFIX.get(name.partition("?")[0].rpartition(".")[2].lower())
    if known is not None or isinstance(part, File) or source.url is not None:
        return known
    return {Image: "image/png", Audio: "audio/wav", Video: "video/mp4"}[type(part)]
