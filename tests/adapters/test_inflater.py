"""What holds of unpacking beyond what comes of it, which those who read bodies prove."""

import gzip
import tracemalloc
import zlib

import pytest

from adapters.inflater import Inflater

JUNK = b"not of the stream"


@pytest.mark.parametrize("is_gzip", [True, False])
def test_what_follows_the_end_is_not_kept(is_gzip: bool) -> None:
    inflater = Inflater(gzip=is_gzip)
    assert inflater.feed((gzip.compress if is_gzip else zlib.compress)(b"text")) == b"text"
    tracemalloc.start()
    try:
        for _ in range(1000):
            assert inflater.feed(JUNK * 100) == b""
        assert tracemalloc.get_traced_memory()[0] < 20 * len(JUNK) * 100
    finally:
        tracemalloc.stop()
    assert inflater.complete


def test_another_member_may_begin_at_any_cut() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    for cut in range(len(packed) + 1):
        inflater = Inflater(gzip=True)
        found = inflater.feed(packed[:cut]) + inflater.feed(packed[cut:])
        while inflater.pending:
            found += inflater.feed(b"")
        assert (found, inflater.complete) == (b"one two", True), cut
