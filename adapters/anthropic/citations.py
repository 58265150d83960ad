"""Citations both ways. One stands for the whole text block that it belongs to.

A citation of a page that another provider made has no `encrypted_index`, which only Anthropic can give: it is empty,
and such a citation does not go back to Anthropic.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from adapters.canonical.citation import BLOCK, CHAR, PAGE, RESULT, Citation, Place

__all__ = ["citation_objects", "is_foreign", "parse_citation"]

_WEB = "web_search_result_location"


class _Wire(Struct):
    type: str = ""
    url: str | None = None
    source: str | None = None
    title: str | None = None
    document_title: str | None = None
    cited_text: str | None = None
    document_index: int | None = None
    search_result_index: int | None = None
    file_id: str | None = None
    encrypted_index: str | None = None
    start_char_index: int | None = None
    end_char_index: int | None = None
    start_page_number: int | None = None
    end_page_number: int | None = None
    start_block_index: int | None = None
    end_block_index: int | None = None


_decode = Decoder(_Wire).decode


def parse_citation(raw: bytes) -> tuple[Citation, ...]:
    """Nothing for a kind that is not known."""
    try:
        found = _decode(raw)
    except DecodeError:
        return ()
    known = Citation(
        url=found.url,
        title=found.title or found.document_title,
        cited_text=found.cited_text,
        document=found.document_index,
        file_id=found.file_id,
        place=_place(found),
    )
    match found.type:
        case "search_result_location":
            return (_of_result(found, known),)
        case "web_search_result_location" | "char_location" | "page_location" | "content_block_location":
            return (known,)
        case _:
            return ()


def _of_result(found: _Wire, known: Citation) -> Citation:
    return Citation(
        url=found.source,
        title=known.title,
        cited_text=known.cited_text,
        document=found.search_result_index,
        place=known.place,
    )


def _place(found: _Wire) -> Place | None:
    match found.type:
        case "char_location":
            unit, start, end = CHAR, found.start_char_index, found.end_char_index
        case "page_location":
            unit, start, end = PAGE, found.start_page_number, found.end_page_number
        case "content_block_location":
            unit, start, end = BLOCK, found.start_block_index, found.end_block_index
        case "search_result_location":
            unit, start, end = RESULT, found.start_block_index, found.end_block_index
        case _:
            return None
    return None if start is None or end is None else Place(unit, start, end)


def citation_objects(citations: Sequence[Citation]) -> list[dict[str, Any]]:
    """Those that the API has words for."""
    return [found for citation in citations if (found := _object(citation)) is not None]


def _object(citation: Citation) -> dict[str, Any] | None:
    """None for what the API has no word for: a file, or a document whose number or place is not known."""
    said = {"cited_text": citation.cited_text or ""}
    place = citation.place
    if place is not None and citation.document is not None:
        if place.unit == RESULT:
            return {
                "type": "search_result_location",
                **said,
                "source": citation.url or "",
                "title": citation.title,
                "search_result_index": citation.document,
                "start_block_index": place.start,
                "end_block_index": place.end,
            }
        kind, start, end = {
            CHAR: ("char_location", "start_char_index", "end_char_index"),
            PAGE: ("page_location", "start_page_number", "end_page_number"),
            BLOCK: ("content_block_location", "start_block_index", "end_block_index"),
        }[place.unit]
        document = {"document_index": citation.document, "document_title": citation.title, "file_id": citation.file_id}
        return {"type": kind, **said, **document, start: place.start, end: place.end}
    if citation.url:
        return {"type": _WEB, **said, "encrypted_index": "", "title": citation.title, "url": citation.url}
    return None


def is_foreign(raw: bytes) -> bool:
    """Whether this gateway wrote it for an answer that another provider gave."""
    try:
        found = _decode(raw)
    except DecodeError:
        return False
    return found.type == _WEB and not found.encrypted_index
