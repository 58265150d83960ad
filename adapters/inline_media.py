"""Media that stand in a request itself: data URIs as their data, and types by what the bytes are, not by a name."""

import base64
import binascii

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import MediaSource

__all__ = ["audio_format", "data_url", "decoded", "resolved"]

_MAGIC = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF", "application/pdf"),
)
_AUDIO_MAGIC = ((b"RIFF", "wav"), (b"ID3", "mp3"), (b"\xff\xfb", "mp3"), (b"fLaC", "flac"), (b"OggS", "ogg"))
_SNIFFED_CHARS = 16


def resolved(source: MediaSource) -> MediaSource:
    """A data URI as its data, with the type that the first bytes tell where they tell one; a reference as it is.

    Raises InvalidRequest for data that are not base64.
    """
    data, media_type = source.data, source.media_type
    uri = source.url if source.url is not None else data
    if uri is not None and uri[:5].lower() == "data:":
        head, comma, data = uri.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise InvalidRequest.at("messages", "a data URI must hold base64")
        media_type = head[5:].partition(";")[0].strip().lower() or media_type
    elif data is None:
        return source
    return MediaSource(data=data, media_type=_sniffed(data) or media_type)


def data_url(source: MediaSource, media_type: str) -> str:
    """The URL of media; data become a data URI, of `media_type` where they do not say their own."""
    if source.url is not None:
        return source.url
    return f"data:{source.media_type or media_type};base64,{source.data or ''}"


def audio_format(data: str) -> str | None:
    """What sound's first bytes tell of its format."""
    start = decoded(data[:_SNIFFED_CHARS])
    return next((name for magic, name in _AUDIO_MAGIC if start.startswith(magic)), None)


def decoded(data: str) -> bytes:
    """Raises InvalidRequest for what is not base64."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest.at("messages", "a file or image whose data is not valid base64") from error


def _sniffed(data: str) -> str | None:
    start = decoded(data[:_SNIFFED_CHARS])
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _MAGIC if start.startswith(magic)), None)
