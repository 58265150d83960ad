"""Citations of Cohere's chat as what they mean: one for each source of a place in the text."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from adapters.canonical.citation import Citation

__all__ = ["CitedPlace", "parse_citation"]

_NUMBER = re.compile(r"(?:doc[:_-]?)?(\d{1,9})")
"""Ids that the API itself gives to documents."""


class _Source(Struct):
    type: str = ""
    id: str = ""
    document: dict[str, Any] | None = None
    tool_output: dict[str, Any] | None = None


class _Wire(Struct):
    start: int | None = None
    end: int | None = None
    type: str = ""
    content_index: int = 0
    sources: list[_Source] | None = None


class CitedPlace(Struct, frozen=True):
    """`content` is the index of the text that is meant, None for the plan."""

    content: int | None
    citations: tuple[Citation, ...]


_decode = Decoder(_Wire).decode


def parse_citation(raw: bytes) -> CitedPlace | None:
    """None for what is no citation."""
    try:
        found = _decode(raw)
    except DecodeError:
        return None
    citations = tuple([_citation(source, found) for source in found.sources or ()])
    return CitedPlace(None if found.type == "PLAN" else found.content_index, citations)


def _citation(source: _Source, found: _Wire) -> Citation:
    row: Mapping[str, Any] = source.document or source.tool_output or {}
    number = _NUMBER.fullmatch(source.id) if source.type == "document" else None
    return Citation(
        url=_text(row, "url"),
        title=_text(row, "title"),
        cited_text=_text(row, "snippet", "text", "content"),
        document=None if number is None else int(number[1]),
        start=found.start,
        end=found.end,
    )


def _text(row: Mapping[str, Any], *names: str) -> str | None:
    """The first of these fields that is text: what documents and results of tools hold is up to the client."""
    return next((value for name in names if isinstance(value := row.get(name), str) and value), None)
