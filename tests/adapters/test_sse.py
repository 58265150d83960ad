"""SSE decoding: any line ending, any cut, bounds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.canonical.errors import BadUpstreamResponse
from adapters.sse import SseDecoder
from tests.adapters.openai.exchange import chat

TEXT = st.text(alphabet=st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1, max_size=8)
ENDING = st.sampled_from(["\n", "\r\n", "\r"])
NOISE = st.lists(
    st.sampled_from([": ping", ":", "event: x", "id: 1", "retry: 5", "unknown: y", "datum: z"]), max_size=2
)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream and the data of its events."""
    wire = draw(st.sampled_from(["", "\ufeff"]))
    expected: list[bytes] = []
    for lines in draw(st.lists(st.lists(TEXT, max_size=3), max_size=5)):
        for noise in draw(NOISE):
            wire += noise + draw(ENDING)
        for line in lines:
            wire += draw(st.sampled_from(["data: ", "data:" if not line.startswith(" ") else "data: "]))
            wire += line + draw(ENDING)
        wire += draw(ENDING)
        if lines:
            expected.append("\n".join(lines).encode())
    return wire.encode(), expected


def decoded(*pieces: bytes, end: bool = True) -> list[bytes]:
    decoder = SseDecoder()
    found = [data for piece in pieces for data in decoder.feed(piece)]
    return found + decoder.close() if end else found


@st.composite
def cuts(draw: st.DrawFn, wire: bytes) -> list[bytes]:
    offsets = sorted(draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    return [wire[a:b] for a, b in zip([0, *offsets], [*offsets, len(wire)], strict=True)]


@settings(max_examples=300)
@given(st.data())
def test_any_line_ending_and_any_cut_give_the_same_events(data: st.DataObject) -> None:
    wire, expected = data.draw(streams())
    if b"\r" in wire:  # CR then LF of two endings reads as one; the oracle is then the undivided stream
        expected = decoded(wire)
    assert decoded(wire) == expected
    assert decoded(*data.draw(cuts(wire))) == expected
    assert decoded(*[wire[i : i + 1] for i in range(len(wire))]) == expected


@settings(max_examples=300)
@given(
    st.lists(
        st.lists(st.sampled_from(["event: a", "data: 1", "data: 2", "data: ", "id: 1"]), min_size=1, max_size=3),
        min_size=2,
        max_size=4,
    )
)
def test_named_events_in_whole_reads_are_those_of_single_bytes(blocks: list[list[str]]) -> None:
    first, *rest = ["\n".join(block).encode() + b"\n\n" for block in blocks]
    stream = b"event: a\ndata: x\n\n", first, b"".join(rest)
    whole = b"".join(stream)
    assert decoded(*stream) == decoded(*[whole[i : i + 1] for i in range(len(whole))])


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_each_line_ending_ends_lines(ending: bytes) -> None:
    wire = ending.join([b": hi", b"data: a", b"data:b", b"data", b"", b"data: c", b"", b"", b"data: d", b"", b""])
    for offset in range(len(wire)):
        assert decoded(wire[:offset], wire[offset:]) == [b"a\nb\n", b"c", b"d"]


def test_line_endings_may_be_mixed() -> None:
    assert decoded(b"data: a\r\n\ndata: b\n\r\ndata: c\r\rdata: d\n\n") == [b"a", b"b", b"c", b"d"]


def test_an_event_comes_out_with_its_last_byte() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\n") == [b"a"]
    assert decoder.feed(b"data: b\r\n\r") == []
    assert decoder.feed(b"\n") == [b"b"]


def test_only_one_space_after_the_colon_is_dropped() -> None:
    assert decoded(b"data:  a\n\ndata:b\n\n") == [b" a", b"b"]


@pytest.mark.parametrize("wire", [b"data\n\n", b"data:\n\n", b"data: \n\n", b"event: x\n\n", b": c\n\n", b"\n\n\n"])
def test_an_event_without_data_is_none(wire: bytes) -> None:
    assert decoded(wire) == []
    assert decoded(b"data: a\n\n" + wire + b"data: b\n\n") == [b"a", b"b"]


def test_a_byte_order_mark_is_skipped_at_the_start_alone() -> None:
    bom = b"\xef\xbb\xbf"
    assert decoded(bom + b"data: a\n\n") == [b"a"]
    assert decoded(bom[:1], bom[1:2], bom[2:] + b"data: a\n\n") == [b"a"]
    assert decoded(b"data: " + bom + b"\n\n") == [bom]
    assert decoded(bom[:2]) == []


@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\r\n"])
def test_an_unterminated_last_event_is_given_at_the_close(end: bytes) -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n\ndata: b" + end) == [b"a"]
    assert decoder.close() == [b"b"]
    assert decoder.close() == []


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: x\n", b": x\r\n", b"data: x\r"])
def test_an_endless_event_is_an_error_at_the_limit(piece: bytes) -> None:
    decoder = SseDecoder(max_event_bytes=1000)
    taken = 0
    with pytest.raises(BadUpstreamResponse, match="longer than 1000 bytes"):  # noqa: PT012
        while taken < 2000:
            assert decoder.feed(piece) == []
            taken += len(piece)
    assert 1000 < taken < 1400


def test_the_limit_holds_for_one_event_not_for_the_stream() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    for _ in range(100):
        assert decoder.feed(b"data: " + b"x" * 50) == []
        assert decoder.feed(b"\n\n") == [b"x" * 50]


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80"])
def test_broken_utf8_in_a_whole_event_is_an_upstream_error_after_what_came_before(bad: bytes) -> None:
    good = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    wire = good + b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % bad
    for offset in range(len(wire)):
        events, error = chat(stream=True).read_stream(wire[:offset], wire[offset:])
        assert "".join(getattr(event, "text", "") for event in events) == "a"
        assert isinstance(error, BadUpstreamResponse)
