"""Images that a model made, as chat answers tell of them: in `images`, each a part of a message (OpenRouter's form)."""

from typing import Any

from adapters.canonical.messages import MediaSource
from adapters.openai.content import data_url

__all__ = ["IMAGES", "MadeImages", "image_objects"]

IMAGES = "images"


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
