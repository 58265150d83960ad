"""Citations of Converse as what they mean. One stands for the whole block of text that it belongs to."""

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from adapters.canonical.citation import BLOCK, CHAR, PAGE, RESULT, Citation, Place

__all__ = ["parse_citation"]


class _Web(Struct):
    url: str | None = None


class _In(Struct, rename="camel"):
    document_index: int | None = None
    search_result_index: int | None = None
    start: int = 0
    end: int = 0


class _Location(Struct, rename="camel"):
    web: _Web | None = None
    document_char: _In | None = None
    document_page: _In | None = None
    document_chunk: _In | None = None
    search_result_location: _In | None = None


class _Cited(Struct):
    text: str = ""


class _Wire(Struct, rename="camel"):
    title: str | None = None
    source: str | None = None
    source_content: list[_Cited] = []
    location: _Location | None = None


_decode = Decoder(_Wire).decode


def parse_citation(raw: bytes) -> tuple[Citation, ...]:
    """Nothing for what is no citation."""
    try:
        found = _decode(raw)
    except DecodeError:
        return ()
    location = found.location or _Location()
    places = (
        (CHAR, location.document_char),
        (PAGE, location.document_page),
        (BLOCK, location.document_chunk),
        (RESULT, location.search_result_location),
    )
    unit, inside = next(((unit, inside) for unit, inside in places if inside is not None), (None, None))
    url = location.web.url if location.web is not None else None
    document, place = None, None
    if unit is not None and inside is not None:
        document = inside.search_result_index if unit == RESULT else inside.document_index
        place = Place(unit, inside.start, inside.end)
    if unit == RESULT:
        url = url or found.source
    text = "".join([piece.text for piece in found.source_content])
    if not (url or found.title or text or place):
        return ()
    return (Citation(url=url, title=found.title, cited_text=text or None, document=document, place=place),)
