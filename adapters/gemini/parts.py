"""Parts of an answer as Gemini's, for a stream and for a body alike. Every part is whole."""

from typing import Any

import orjson

from adapters.call_objects import told_arguments
from adapters.canonical.messages import ProviderData
from adapters.gemini.signatures import Place, place_of, sealed

__all__ = ["PartWriter", "WirePart"]

_SIGNATURE = "thoughtSignature"
_DEFAULT_TYPES = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4"}

WirePart = dict[str, Any] | orjson.Fragment


class PartWriter:
    """The parts of one candidate, in order. Keeps the signature of a call or picture until that comes."""

    __slots__ = ("_signature",)

    def __init__(self) -> None:
        self._signature: str | None = None

    def text(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def thought(
        self,
        text: str,
        signature: str | None = None,
        encrypted: str | None = None,
        origin: str | None = None,
        data: ProviderData | None = None,
    ) -> list[dict[str, Any]]:
        """What was thought, and its signature where it stood."""
        said: dict[str, Any] = {"text": text, "thought": True}
        proof = sealed(signature, encrypted, origin)
        place = place_of(data)
        if proof is None:
            return [said] if text else []
        if place is None or place is Place.THOUGHT:
            said[_SIGNATURE] = proof
            return [said]
        if place is Place.NEXT:
            self._signature = proof
            return [said] if text else []
        return [*([said] if text else []), {"text": "", _SIGNATURE: proof}]

    def call(self, call_id: str, name: str, arguments: str) -> dict[str, Any]:
        return self._signed({"functionCall": {"id": call_id, "name": name, "args": told_arguments(arguments)}})

    def media(self, kind: str, data: str, media_type: str | None) -> dict[str, Any]:
        """`media_type` may be a file format alone."""
        if media_type is None:
            media_type = _DEFAULT_TYPES.get(kind, "application/octet-stream")
        elif "/" not in media_type:
            media_type = f"{kind}/{media_type}"
        return self._signed({"inlineData": {"mimeType": media_type, "data": data}})

    def _signed(self, part: dict[str, Any]) -> dict[str, Any]:
        if self._signature is not None:
            part[_SIGNATURE], self._signature = self._signature, None
        return part
