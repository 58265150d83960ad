"""Images, files, documents, videos and audio as blocks. Converse takes bytes; what lies elsewhere, only in S3."""

import re
from typing import Any

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import Audio, Document, File, Image, MediaSource, Video
from adapters.inline_media import resolved

__all__ = ["DocumentNames", "audio_block", "document_block", "file_block", "image_block", "video_block"]

_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/jpg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
_VIDEOS = {
    "video/x-matroska": "mkv",
    "video/quicktime": "mov",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/x-flv": "flv",
    "video/mpeg": "mpeg",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
_NAME = re.compile(r"[^A-Za-z0-9 \-()\[\]]+")
_MAX_NAME = 200


def image_block(part: Image) -> dict[str, Any]:
    source, media_type = _source(part.source, "image")
    return {"image": {"format": _format(media_type, _IMAGES, "image"), "source": source}}


def video_block(part: Video) -> dict[str, Any]:
    source, media_type = _source(part.source, "video")
    return {"video": {"format": _format(media_type, _VIDEOS, "video"), "source": source}}


def audio_block(part: Audio) -> dict[str, Any]:
    source, media_type = _source(part.source, "audio")
    form = part.format or (media_type or "").rpartition("/")[2]
    if not form:
        raise UnsupportedParameter.at("messages", "Bedrock needs the format of audio")
    return {"audio": {"format": form, "source": source}}


class DocumentNames:
    """Names as the API allows them: it demands one of each document, and no two of a request may be the same."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def own(self, name: str | None) -> str:
        """The name, with a number behind it where another document has it."""
        clean = own = " ".join(_NAME.sub(" ", name or "").split())[:_MAX_NAME] or "document"
        number = 1
        while own.lower() in self._taken:
            number += 1
            end = f" {number}"
            own = clean[: _MAX_NAME - len(end)] + end
        self._taken.add(own.lower())
        return own


def file_block(part: File, names: DocumentNames) -> dict[str, Any]:
    source, media_type = _source(part.source, "file")
    form = _format(media_type, _DOCUMENTS, "file", part.filename)
    return {"document": {"format": form, "name": names.own(part.filename), "source": source}}


def document_block(part: Document, names: DocumentNames) -> dict[str, Any]:
    found: dict[str, Any] = {"name": names.own(part.title)}
    if part.source is None:
        found["source"] = {"text": part.text or ""}
    else:
        found["source"], media_type = _source(part.source, "document")
        found["format"] = _format(media_type, _DOCUMENTS, "document", part.title)
    if part.context is not None:
        found["context"] = part.context
    if part.citations is not None:
        found["citations"] = {"enabled": part.citations}
    return {"document": found}


def _source(source: MediaSource, kind: str) -> tuple[dict[str, Any], str | None]:
    """The source object, and the media type where it is known."""
    found = resolved(source)
    if found.data is not None:
        return {"bytes": found.data}, found.media_type
    if found.url is not None and found.url.startswith("s3://"):
        return {"s3Location": {"uri": found.url}}, found.media_type
    raise UnsupportedParameter.at("messages", f"Bedrock takes {kind}s as data or from S3, not by address")


def _format(media_type: str | None, formats: dict[str, str], kind: str, name: str | None = None) -> str:
    known = formats.get(media_type or "")
    if known is not None:
        return known
    ending = (name or "").rpartition(".")[2].lower()
    if ending in formats.values():
        return ending
    raise UnsupportedParameter.at("messages", f"Bedrock takes no {kind}s of the type {media_type}")
