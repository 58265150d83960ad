"""Files and documents of text, for models that read text alone. What is text is told by the bytes, not by a name."""

import re

from msgspec.structs import replace

from adapters.canonical.messages import Document, File, Text, plain_parts
from adapters.inline_media import decoded, resolved

__all__ = ["as_document", "as_plain_text"]

_OTHERS = ("application/pdf", "image/", "audio/", "video/")
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""What no text holds, though it may be valid UTF-8."""


def as_document(part: File | Document) -> Document | None:
    """The part with what it says as its text. None for one that is not UTF-8, or does not stand in the request.

    Raises InvalidRequest for data that are not base64.
    """
    if isinstance(part, Document) and part.text is not None:
        return part
    source = None if part.source is None else resolved(part.source)
    if source is None or source.data is None or (source.media_type or "").startswith(_OTHERS):
        return None
    try:
        text = decoded(source.data).decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if _NO_TEXT.search(text):
        return None
    if isinstance(part, Document):
        return replace(part, source=None, text=text)
    return Document(title=part.filename, text=text, cache=part.cache)


def as_plain_text(part: File | Document) -> Text | None:
    """Its name, and what it says. None also for a document that is to be cited, which plain text can't be."""
    document = as_document(part)
    told = None if document is None else plain_parts(document)
    return next((one for one in told or () if isinstance(one, Text)), None)
