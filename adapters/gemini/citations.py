"""Grounding and citations both ways. Gemini counts bytes of UTF-8, in the text of the whole answer as a stream adds it
up."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import DecodeError, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from adapters.canonical.citation import Citation

__all__ = ["Cited", "by_part", "grounding_object", "parse_citations"]


class _Chunk(Struct):
    """`web`, `retrievedContext` and `maps` of a grounding chunk."""

    uri: str | None = None
    title: str | None = None
    text: str | None = None


class _GroundingChunk(Struct, rename="camel"):
    web: _Chunk | None = None
    retrieved_context: _Chunk | None = None
    maps: _Chunk | None = None


class _Segment(Struct, rename="camel"):
    start_index: int = 0
    end_index: int | None = None
    text: str | None = None


class _Support(Struct, rename="camel"):
    segment: _Segment | None = None
    grounding_chunk_indices: list[int] | None = None


class _Grounding(Struct, rename="camel"):
    grounding_chunks: list[_GroundingChunk] | None = None
    grounding_supports: list[_Support] | None = None


class _Source(Struct, rename="camel"):
    start_index: int = 0
    end_index: int | None = None
    uri: str | None = None
    title: str | None = None


class _Citations(Struct, rename="camel"):
    """`citations` on Vertex AI."""

    citation_sources: list[_Source] | None = None
    citations: list[_Source] | None = None


_decode_grounding = Decoder(_Grounding | None).decode
_decode_citations = Decoder(_Citations | None).decode


class Cited(NamedTuple):
    """A place in the whole answer's text, in characters, and its source."""

    start: int
    end: int
    citation: Citation


def parse_citations(grounding: bytes, citations: bytes, text: str) -> list[Cited]:
    """What `groundingMetadata` and `citationMetadata` say of this text; nothing where they have another form."""
    places = _Places(text)
    try:
        return [*_grounded(grounding, places), *_recited(citations, places)]
    except DecodeError:
        return []


def _grounded(raw: bytes, places: "_Places") -> list[Cited]:
    found = _decode_grounding(raw or b"null") or _Grounding()
    chunks = found.grounding_chunks or []
    if not found.grounding_supports:
        return [Cited(*places.whole, source) for chunk in chunks if (source := _source(chunk)) is not None]
    cited: list[Cited] = []
    for support in found.grounding_supports:
        segment = support.segment or _Segment()
        place = places.of(segment.start_index, segment.end_index, segment.text)
        for number in support.grounding_chunk_indices or ():
            source = _source(chunks[number]) if 0 <= number < len(chunks) else None
            if source is not None:
                cited.append(Cited(*place, source))
    return cited


def _source(chunk: _GroundingChunk) -> Citation | None:
    found = chunk.web or chunk.retrieved_context or chunk.maps
    if found is None or not (found.uri or found.title or found.text):
        return None
    return Citation(url=found.uri, title=found.title, cited_text=found.text)


def _recited(raw: bytes, places: "_Places") -> list[Cited]:
    found = _decode_citations(raw or b"null") or _Citations()
    return [
        Cited(*places.of(source.start_index, source.end_index, None), Citation(url=source.uri, title=source.title))
        for source in found.citation_sources or found.citations or ()
        if source.uri or source.title
    ]


class _Places:
    """From bytes to characters."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._bytes = text.encode()
        self.whole = (0, len(text))

    def of(self, start: int, end: int | None, said: str | None) -> tuple[int, int]:
        """`said`: what stands there. Where the count is another one (of a part in the midst), it is looked for."""
        last = len(self._bytes) if end is None else end
        piece = self._bytes[start:last]
        if said and piece != said.encode():
            at = self._text.find(said)
            return self.whole if at < 0 else (at, at + len(said))
        return self._characters(start), self._characters(last)

    def _characters(self, offset: int) -> int:
        return len(self._bytes[: max(0, offset)].decode(errors="ignore"))


def by_part(
    cited: Sequence[Cited], starts: Sequence[tuple[int, int]], texts: Sequence[str]
) -> Iterator[tuple[int, tuple[Citation, ...]]]:
    """The parts of text that are cited, each with its citations and their places in it.

    `starts`: the number of each part, and how many of the `texts` stand before it.
    """
    stops = [*[before for _, before in starts[1:]], len(texts)]
    begin = 0
    for (part, before), stop in zip(starts, stops, strict=True):
        end = begin + sum([len(text) for text in texts[before:stop]])
        here = [
            replace(citation, start=start - begin, end=min(last, end) - begin)
            for start, last, citation in cited
            if begin <= start < end
        ]
        if here:
            yield part, tuple(here)
        begin = end


def grounding_object(cited: Sequence[Cited], text: str) -> dict[str, Any]:
    """`groundingMetadata` of an answer with this text: each source once, and what each place is drawn from."""
    chunks: list[dict[str, Any]] = []
    places: dict[tuple[int, int], list[int]] = {}
    for start, end, citation in cited:
        chunk = _chunk(citation)
        if chunk not in chunks:
            chunks.append(chunk)
        numbers = places.setdefault((start, end), [])
        if chunks.index(chunk) not in numbers:
            numbers.append(chunks.index(chunk))
    supports = [
        {
            "segment": {
                "startIndex": len(text[:start].encode()),
                "endIndex": len(text[:end].encode()),
                "text": text[start:end],
            },
            "groundingChunkIndices": numbers,
        }
        for (start, end), numbers in places.items()
    ]
    return {"groundingChunks": chunks, "groundingSupports": supports}


def _chunk(citation: Citation) -> dict[str, Any]:
    """A page by its address, without what it says; a document, or a file, with it."""
    if citation.url:
        return {"web": {"uri": citation.url, "title": citation.title or ""}}
    told = {"title": citation.title or citation.file_id, "text": citation.cited_text}
    return {"retrievedContext": {name: value for name, value in told.items() if value is not None}}
