"""Images that a model made, as chat answers tell of them: in `images`, each a part of a message (OpenRouter's form)."""

import re
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.messages import MediaSource
from adapters.inline_media import data_url
from adapters.upstream_json import UNREADABLE

__all__ = ["IMAGES", "MadeImages", "image_objects", "parse_images"]

IMAGES = "images"
_DATA_URI = re.compile(r"data:(image/[a-z0-9.+-]+);base64,")


class _Address(Struct, forbid_unknown_fields=True):
    url: str


class _Image(Struct, forbid_unknown_fields=True):
    image_url: _Address
    type: str | None = None
    index: int | None = None


_decode_images = Decoder(list[_Image]).decode


def parse_images(raw: bytes) -> list[MediaSource] | None:
    """Images of an upstream that hold their data and say nothing else. None: there are others among them."""
    try:
        urls = [image.image_url.url for image in _decode_images(raw)]
    except UNREADABLE:
        return None
    found: list[MediaSource] = []
    for url in urls:
        head = _DATA_URI.match(url)
        if head is None:
            return None
        found.append(MediaSource(data=url[head.end() :], media_type=head[1]))
    return found


def image_objects(sources: list[MediaSource]) -> list[dict[str, Any]]:
    return [
        {"type": "image_url", "index": index, "image_url": {"url": data_url(source, "image/png")}}
        for index, source in enumerate(sources)
    ]


class MadeImages:
    """Those of one choice of a stream, which are told when it ends: their data come in pieces."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: dict[int, tuple[str | None, list[str]]] = {}

    def add(self, part: int, media_type: str | None, data: str) -> None:
        self._pieces.setdefault(part, (media_type, []))[1].append(data)

    def objects(self) -> list[dict[str, Any]]:
        found = [MediaSource(data="".join(data), media_type=kind) for kind, data in self._pieces.values()]
        return image_objects(found)
