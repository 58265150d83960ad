"""Lines of JSON out of bytes that may be cut anywhere."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.errors import BadUpstreamResponse
from adapters.ndjson import LineDecoder

CHARACTERS = st.characters(exclude_characters="\n\r", exclude_categories=["Cs"])
LINES = st.lists(st.text(CHARACTERS, max_size=20).map(str.encode), max_size=8)


def read(pieces: list[bytes]) -> list[bytes]:
    decoder = LineDecoder()
    found = [line for piece in pieces for line in decoder.feed(piece)]
    return found + decoder.close()


@given(LINES, st.lists(st.integers(0, 200), max_size=6), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_any_cut_gives_the_same_lines(rows: list[bytes], cuts: list[int], end: bytes, ended: bool) -> None:
    stream = end.join(rows) + (end if ended else b"")
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    found = read([stream[a:b] for a, b in pairwise(places)])
    assert [line.strip() for line in found] == [row.strip() for row in rows if row.strip()]


def test_a_line_without_an_end_is_bounded() -> None:
    decoder = LineDecoder(max_line_bytes=10)
    assert decoder.feed(b"x" * 11) == []
    with pytest.raises(BadUpstreamResponse, match="longer than 10"):
        decoder.feed(b"x")
