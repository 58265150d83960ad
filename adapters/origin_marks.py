"""Whose an opaque proof of reasoning is, told inside of it: for dialects whose clients can give back nothing else.

A blob that is handed out names the provider that made it, so that it goes back to that one only, whichever model the
conversation is with by then. The mark is base64, as the blobs themselves are: clients may write it in either alphabet.
"""

import base64
import binascii

__all__ = ["marked", "unmarked"]

_HEAD = b"gwo:1\n"
_MARK = base64.b64encode(_HEAD).decode()  # of six bytes, so that what follows does not change it


def marked(blob: str, origin: str | None) -> str:
    """The blob as a client gets it; as it is where nobody knows its maker."""
    if origin is None:
        return blob
    return base64.b64encode(_HEAD + f"{origin}\n{blob}".encode()).decode()


def unmarked(blob: str) -> tuple[str, str | None]:
    """The blob as its maker wrote it, and who that is. None: it was not handed out here."""
    if not blob.startswith(_MARK):
        return blob, None
    try:
        inner = base64.b64decode(blob.translate(str.maketrans("-_", "+/")), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return blob, None
    origin, separator, found = inner[len(_HEAD) :].partition("\n")
    return (found, origin) if separator else (blob, None)
