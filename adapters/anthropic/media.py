"""Images and documents towards Anthropic: sources by what the bytes are, not by what they are called."""

from typing import Any

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import Document, File, Image, MediaSource
from adapters.inline_media import resolved
from adapters.text_files import as_document

__all__ = ["document_block", "file_block", "image_block"]

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF = "application/pdf"


def image_block(image: Image) -> dict[str, Any]:
    return {"type": "image", "source": _image_source(resolved(image.source))}


def file_block(file: File) -> dict[str, Any]:
    """A PDF or plain text is a document, a picture an image."""
    source = resolved(file.source)
    if source.media_type in _IMAGES:
        return {"type": "image", "source": _image_source(source)}
    if (document := as_document(file)) is not None:
        return document_block(document)
    found: dict[str, Any] = {"type": "document", "source": _document_source(source)}
    if file.filename is not None:
        found["title"] = file.filename
    return found


def document_block(document: Document) -> dict[str, Any]:
    document = as_document(document) or document
    if document.text is not None:
        source: dict[str, Any] = {"type": "text", "media_type": "text/plain", "data": document.text}
    else:
        source = _document_source(resolved(document.source or MediaSource()))
    found: dict[str, Any] = {"type": "document", "source": source}
    if document.title is not None:
        found["title"] = document.title
    if document.context is not None:
        found["context"] = document.context
    if document.citations is not None:
        found["citations"] = {"enabled": document.citations}
    return found


def _image_source(source: MediaSource) -> dict[str, Any]:
    if source.data is None:
        return _reference(source)
    if source.media_type not in _IMAGES:
        raise UnsupportedParameter.at("messages", f"an image is one of {', '.join(_IMAGES)}")
    return {"type": "base64", "media_type": source.media_type, "data": source.data}


def _document_source(source: MediaSource) -> dict[str, Any]:
    if source.data is None:
        return _reference(source)
    if source.media_type == _PDF:
        return {"type": "base64", "media_type": _PDF, "data": source.data}
    raise UnsupportedParameter.at("messages", "a file is a PDF, a text in UTF-8 or an image")


def _reference(source: MediaSource) -> dict[str, Any]:
    if source.file_id is not None:
        return {"type": "file", "file_id": source.file_id}
    if source.url is not None:
        return {"type": "url", "url": source.url}
    raise InvalidRequest.at("messages", "a file or image without data, url or id")
