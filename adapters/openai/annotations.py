"""Citations on a text, which chat nests and the Responses API has flat.

chat         {"type": "url_citation", "url_citation": {"url", "title", "start_index", "end_index"}}
responses    {"type": "url_citation", "url", "title", "start_index", "end_index"}
"""

import orjson
from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from adapters.openai.vocabulary import CHAT, RESPONSES

__all__ = ["annotation_for"]

_decode = Decoder(dict[str, Raw]).decode
_CITATION = "url_citation"
_TYPE = b'"url_citation"'


def annotation_for(dialect: str, annotation: bytes, origin: str) -> bytes | None:
    """The annotation in this dialect; None where it has no word for it."""
    if origin == dialect:
        return annotation
    if origin not in (CHAT, RESPONSES):
        return None
    try:
        fields = _decode(annotation)
        if bytes(fields.pop("type", b"")) != _TYPE:
            return None
        inner = fields if origin == RESPONSES else _decode(fields[_CITATION])
    except (DecodeError, KeyError):
        return None
    told = {name: orjson.Fragment(bytes(raw)) for name, raw in inner.items()}
    return orjson.dumps({"type": _CITATION, _CITATION: told} if dialect == CHAT else {"type": _CITATION, **told})
