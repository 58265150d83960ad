"""Citations on a text both ways, which chat nests and the Responses API has flat.

chat         {"type": "url_citation", "url_citation": {"url", "title", "start_index", "end_index"}}
responses    {"type": "url_citation", "url", "title", "start_index", "end_index"}
             {"type": "file_citation", "file_id", "filename", "index"}

Some vendors list their sources beside the choices: `citations` (addresses) and `search_results`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from adapters.canonical.citation import Citation
from adapters.raw_json import fragments, raw_fields

__all__ = ["SOURCE_FIELDS", "chat_annotations", "flat", "listed_sources", "parse_annotation", "responses_annotation"]

SOURCE_FIELDS = ("search_results", "citations")
_CITATION = "url_citation"
_TYPE = b'"url_citation"'


class _Wire(Struct):
    type: str = ""
    url: str | None = None
    title: str | None = None
    content: str | None = None
    start_index: int | None = None
    end_index: int | None = None
    file_id: str | None = None
    filename: str | None = None
    index: int | None = None
    url_citation: "_Wire | None" = None


class _Source(Struct):
    url: str | None = None
    title: str | None = None
    snippet: str | None = None


_decode = Decoder(_Wire).decode
_decode_sources = Decoder(list[str | _Source] | None).decode


def parse_annotation(raw: bytes) -> tuple[Citation, ...]:
    """Nothing for a kind that is no source of the text."""
    try:
        found = _decode(raw)
    except DecodeError:
        return ()
    match found.type:
        case "url_citation":
            told = found.url_citation or found
            start, end = told.start_index, told.end_index
            citation = Citation(url=told.url, title=told.title, cited_text=told.content, start=start, end=end)
            return (citation,) if told.url else ()
        case "file_citation":
            return (Citation(file_id=found.file_id, title=found.filename, document=found.index),)
        case _:
            return ()


def listed_sources(fields: Mapping[str, bytes]) -> tuple[Citation, ...]:
    """Each address once, with what the fuller list says of it."""
    found: dict[str, Citation] = {}
    for name in SOURCE_FIELDS:
        try:
            sources = _decode_sources(fields.get(name, b"null")) or ()
        except DecodeError:
            continue  # another vendor's field of this name; its own clients get it as it is
        for source in sources:
            row = _Source(source) if isinstance(source, str) else source
            if row.url:
                found.setdefault(row.url, Citation(url=row.url, title=row.title, cited_text=row.snippet))
    return tuple(found.values())


def chat_annotations(cited: Sequence[tuple[int, Citation]], starts: Mapping[int, int], length: int) -> list[Any]:
    """Citations of parts that begin at `starts` of a content of this length."""
    found = []
    for part, citation in cited:
        start = starts.get(part, length)
        behind = [other for other in starts.values() if other > start]
        first, last = citation.span(min(behind, default=length) - start)
        found.append(_chat_annotation(citation, start + first, start + last))
    return [annotation for annotation in found if annotation is not None]


def _chat_annotation(citation: Citation, start: int, end: int) -> dict[str, Any] | None:
    """At this place of the message's content. None: chat has a word for addresses alone."""
    if not citation.url:
        return None
    told: dict[str, Any] = _span(citation, start, end)
    if citation.cited_text:
        told["content"] = citation.cited_text
    return {"type": _CITATION, _CITATION: told}


def responses_annotation(citation: Citation, start: int, end: int) -> dict[str, Any] | None:
    """At this place of the content part. None for what is neither at an address nor in a file."""
    if citation.url:
        return {"type": _CITATION, **_span(citation, start, end)}
    if citation.file_id:
        file = {"file_id": citation.file_id, "filename": citation.title or "", "index": citation.document or 0}
        return {"type": "file_citation", **file}
    return None


def _span(citation: Citation, start: int, end: int) -> dict[str, Any]:
    return {"url": citation.url, "title": citation.title or "", "start_index": start, "end_index": end}


def flat(annotation: bytes) -> bytes | None:
    """A citation of chat as the Responses API has it, with all of its fields; None for any other annotation."""
    try:
        fields = raw_fields(annotation)
        if bytes(fields.pop("type", b"")) != _TYPE:
            return None
        inner = raw_fields(fields[_CITATION])
    except (DecodeError, KeyError):
        return None
    return orjson.dumps({"type": _CITATION, **fragments(inner)})
