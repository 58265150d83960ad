"""What a text is drawn from: as much of a citation as means the same in every dialect."""

from msgspec import Struct

__all__ = ["BLOCK", "CHAR", "PAGE", "RESULT", "Citation", "Place"]

CHAR = "char"
PAGE = "page"
BLOCK = "block"
RESULT = "result"


class Place(Struct, frozen=True):
    """Where in a document: from `start` until before `end`, counted in units (char, page, block) of the document, or in
    blocks of one of the search results (result) that the request holds."""

    unit: str
    start: int
    end: int


class Citation(Struct, frozen=True, kw_only=True):
    """One source of a text. `cited_text` is what stands there, `document` the number of the document (or search result)
    in the request, from 0.

    `start` and `end` count characters of the text part that it belongs to, `end` excluded. None: of the whole part.
    """

    url: str | None = None
    title: str | None = None
    cited_text: str | None = None
    document: int | None = None
    file_id: str | None = None
    place: Place | None = None
    start: int | None = None
    end: int | None = None

    def span(self, length: int) -> tuple[int, int]:
        """Where it stands in a part of this length."""
        end = length if self.end is None else max(0, min(self.end, length))
        return max(0, min(self.start or 0, end)), end
