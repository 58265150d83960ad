"""One connection: any cut gives the same answer, what could be read in two ways is refused, and memory has bounds."""

import asyncio
import gc
import gzip
import zlib
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.inflater import Undecodable
from providers.remote.connection import NotHttp
from providers.remote.wire_answer import BrokenOff, WireAnswer
from tests.providers.remote.wire import Peer, read_whole

HEAD = b"HTTP/1.1 200 OK\r\n"
TEXT = b"hello, hello, hello"
PACKED = gzip.compress(TEXT, mtime=0)
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
WITH_LENGTH = HEAD + b"Content-Length: 19\r\n\r\n" + TEXT
GOOD = {
    "length": WITH_LENGTH,
    "chunks": CHUNKED + b"5\r\nhello\r\ne;a=b\r\n, hello, hello\r\n0\r\n\r\n",
    "trailers": CHUNKED + b"13\r\n" + TEXT + b"\r\n0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n",
    "hints first": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: </a>\r\n\r\n" + WITH_LENGTH,
    "gzip": HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(PACKED) + PACKED,
    "gzip chunks": CHUNKED[:-2] + b"content-encoding: gzip\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(PACKED), PACKED),
}
UNTIL_CLOSE = HEAD + b"content-type: a/b\r\n\r\n" + TEXT


def taken(data: Iterator[bytes], *, hang_up: bool = False) -> tuple[int, bytes, Peer, WireAnswer]:
    """Status and body of an answer that came in these pieces."""
    peer = Peer()
    answer = peer.ask()
    body = b""
    for piece in data:
        peer.say(piece)
        body += read_whole(answer)
    if hang_up:
        peer.hang_up()
        body += read_whole(answer)
    return answer.status, body, peer, answer


class TestCuts:
    @pytest.mark.parametrize("sent", GOOD.values(), ids=GOOD)
    async def test_an_answer_cut_anywhere_is_the_same_and_gives_its_connection_back(self, sent: bytes) -> None:
        for cut in range(1, len(sent)):
            status, body, peer, answer = taken(iter((sent[:cut], sent[cut:])))
            assert (status, body, answer.finished, peer.released) == (200, TEXT, True, 1), cut
        assert taken(iter((sent,)))[1] == TEXT

    @pytest.mark.parametrize("sent", [*GOOD.values(), UNTIL_CLOSE], ids=[*GOOD, "until close"])
    async def test_an_answer_that_comes_byte_by_byte_is_the_same(self, sent: bytes) -> None:
        status, body, _, answer = taken((bytes((byte,)) for byte in sent), hang_up=True)
        assert (status, body, answer.finished) == (200, TEXT, True)

    @pytest.mark.parametrize("sent", GOOD.values(), ids=GOOD)
    async def test_an_answer_that_ends_early_is_no_answer_or_a_broken_one(self, sent: bytes) -> None:
        for cut in range(len(sent)):
            status, body, peer, answer = taken(iter((sent[:cut],) if cut else ()), hang_up=True)
            assert TEXT.startswith(body)
            assert isinstance(answer.failure, BrokenOff), cut
            assert answer.head.done()
            assert (answer.head.exception() is None) == (status == 200)
            assert (peer.released, peer.times_dropped) == (0, 1)

    async def test_a_body_without_a_length_ends_well_only_where_the_connection_does(self) -> None:
        assert taken(iter((UNTIL_CLOSE,)), hang_up=True)[3].finished
        _, body, peer, answer = taken(iter((UNTIL_CLOSE,)))
        peer.hang_up(ConnectionResetError())
        assert (body, type(answer.failure)) == (TEXT, BrokenOff)

    async def test_what_came_before_the_end_can_still_be_taken(self) -> None:
        peer = Peer()
        answer = peer.ask()
        peer.say(WITH_LENGTH[:-3])
        peer.hang_up(ConnectionResetError())
        assert answer.take() == TEXT[:-3]
        assert isinstance(answer.failure, BrokenOff)


class TestRefused:
    @pytest.mark.parametrize(
        "sent",
        [
            HEAD + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            HEAD + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            HEAD + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
            HEAD + b"content-length: 3, 3\r\n\r\nabc",
            HEAD + b"content-length: +3\r\n\r\nabc",
            HEAD + b"content-length: -3\r\n\r\nabc",
            HEAD + b"content-length: 0x3\r\n\r\nabc",
            HEAD + b"content-length: 99999999999999999999999\r\n\r\nabc",
            HEAD + b"content-length : 3\r\n\r\nabc",
            HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            HEAD + b"transfer-encoding: xchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            HEAD + b"transfer-encoding: identity\r\n\r\nabc",
            HEAD + b"transfer-encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            HEAD + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            HEAD + b"a: b\r\n folded\r\ncontent-length: 3\r\n\r\nabc",
            HEAD + b"a: b\0c\r\ncontent-length: 3\r\n\r\nabc",
            HEAD + b"a: b\rc\r\ncontent-length: 3\r\n\r\nabc",
            HEAD + b": b\r\ncontent-length: 3\r\n\r\nabc",
            b"HTTP/1.1 200 OK\ncontent-length: 3\n\nabc",
            b"HTTP/1.1 099 OK\r\ncontent-length: 3\r\n\r\nabc",
            b"HTTP/1.1 2000 OK\r\ncontent-length: 3\r\n\r\nabc",
            b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nabc",
            b"HTTP/9.9 200 OK\r\ncontent-length: 3\r\n\r\nabc",
            b"SSH-2.0-OpenSSH_9\r\n\r\n",
            b"\x16\x03\x01\x02\x00",
        ],
    )
    async def test_a_head_that_is_none_or_could_be_read_in_two_ways_is_not_http(self, sent: bytes) -> None:
        for pieces in ([sent], [bytes((byte,)) for byte in sent]):
            _, body, peer, answer = taken(iter(pieces))
            assert (body, answer.status, peer.released, peer.transport.closed) == (b"", 0, 0, True)
            assert isinstance(answer.head.exception(), NotHttp)

    @pytest.mark.parametrize(
        "chunks",
        [
            b"-1\r\nabc\r\n",
            b"3 \r\nabc\r\n",
            b"3\nabc\r\n",
            b"x\r\n",
            b"fffffffffffffffff\r\n",
            b"\r\n",
            b"0x3\r\nabc\r\n",
        ],
    )
    async def test_broken_chunks_end_the_answer_and_its_connection(self, chunks: bytes) -> None:
        status, body, peer, answer = taken(iter((CHUNKED + chunks,)))
        assert (status, body, peer.released, peer.transport.closed) == (200, b"", 0, True)
        assert answer.head.exception() is None
        assert isinstance(answer.failure, BrokenOff)

    async def test_a_chunk_longer_than_it_says_gives_no_more_than_it_says(self) -> None:
        _, body, _, answer = taken(iter((CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",)))
        assert (body, type(answer.failure)) == (b"abc", BrokenOff)

    @pytest.mark.parametrize("junk", [b"x", WITH_LENGTH, b"HTTP/1.1 100 Continue\r\n\r\n"])
    async def test_an_answer_with_more_behind_it_is_good_and_its_connection_is_not(self, junk: bytes) -> None:
        status, body, peer, answer = taken(iter((WITH_LENGTH + junk,)))
        assert (status, body, answer.finished) == (200, TEXT, True)
        assert (peer.released, peer.transport.closed) == (0, True)

    async def test_bytes_that_nobody_asked_for_end_an_idle_connection(self) -> None:
        _, _, peer, _ = taken(iter((WITH_LENGTH,)))
        peer.say(WITH_LENGTH)
        assert (peer.released, peer.times_dropped, peer.transport.closed) == (1, 1, True)

    @pytest.mark.parametrize("said", [b"HTTP/1.1 200 OK\r\nconnection: close\r\n", b"HTTP/1.0 200 OK\r\n"])
    async def test_a_peer_that_will_close_is_not_asked_again(self, said: bytes) -> None:
        _, body, peer, answer = taken(iter((said + WITH_LENGTH[len(HEAD) :],)))
        assert (body, answer.finished, peer.released) == (TEXT, True, 0)

    @pytest.mark.parametrize("status", [204, 304])
    async def test_an_answer_that_has_no_body_ends_with_its_head(self, status: int) -> None:
        found, body, peer, answer = taken(iter((b"HTTP/1.1 %d X\r\n\r\n" % status,)))
        assert (found, body, answer.finished, peer.released) == (status, b"", True, 1)


class TestBounds:
    @pytest.mark.parametrize(
        "sent",
        [
            HEAD + b"a: b\r\n" * 129 + b"content-length: 3\r\n\r\nabc",
            HEAD + b"a: " + b"b" * 70_000 + b"\r\ncontent-length: 3\r\n\r\nabc",
            HEAD + b"a: " + b"b" * 200_000,
            b"HTTP/1.1 200 " + b"b" * 200_000,
            b"\r\n" * 100_000,
            b"HTTP/1.1 103 Early\r\n\r\n" * 10_000,
        ],
        ids=["fields", "value", "endless value", "endless line", "empty lines", "hints"],
    )
    async def test_a_head_beyond_its_bound_is_refused(self, sent: bytes) -> None:
        for size in (len(sent), 1000):
            pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
            _, _, peer, answer = taken(iter(pieces))
            assert isinstance(answer.head.exception(), NotHttp)
            assert peer.transport.closed

    @pytest.mark.parametrize("endless", [b"x: y\r\n" * 50, b"x" * 300], ids=["fields", "one name"])
    async def test_endless_trailers_end_the_answer(self, endless: bytes) -> None:
        peer = Peer()
        answer = peer.ask()
        peer.say(CHUNKED + b"3\r\nabc\r\n0\r\n")
        for _ in range(1000):
            peer.say(endless)
        assert answer.take() == b"abc"
        assert (type(answer.failure), peer.transport.closed) == (BrokenOff, True)

    async def test_a_long_stream_whose_chunks_come_apart_from_their_sizes_has_no_end(self) -> None:
        peer = Peer()
        answer = peer.ask()
        peer.say(CHUNKED)
        for _ in range(30_000):
            peer.say(b"3\r\n")
            peer.say(b"abc")
            peer.say(b"\r\n")
            assert answer.take() == b"abc"
        assert not answer.ended

    async def test_a_reader_that_is_slow_pauses_the_socket_and_goes_on_where_it_takes(self) -> None:
        peer = Peer()
        answer = peer.ask()
        peer.say(HEAD + b"content-length: 200000\r\n\r\n")
        peer.say(b"a" * 60_000)
        assert not peer.is_paused()
        peer.say(b"b" * 10_000)
        assert peer.is_paused()
        assert answer.take() == b"a" * 60_000 + b"b" * 10_000
        assert not peer.is_paused()
        peer.say(b"c" * 130_000)
        assert (answer.take(), answer.finished, peer.released) == (b"c" * 130_000, True, 1)

    @pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
    async def test_a_small_body_that_becomes_a_large_one_comes_in_steps(self, pack: object) -> None:
        packed = pack(bytes(50_000_000))  # type: ignore[operator]
        encoding = b"gzip" if pack is gzip.compress else b"deflate"
        peer = Peer()
        answer = peer.ask()
        peer.say(HEAD + b"content-encoding: %b\r\ncontent-length: %d\r\n\r\n" % (encoding, len(packed)) + packed)
        size = 0
        while piece := answer.take():
            assert len(piece) <= 256 * 1024
            size += len(piece)
            assert not answer.finished or size == 50_000_000
        assert (size, answer.finished) == (50_000_000, True)


class TestUnpacking:
    @staticmethod
    def unpacked(encoding: bytes, body: bytes, *, cut: int = 0) -> tuple[bytes, WireAnswer]:
        sent = HEAD + b"content-encoding: %b\r\ncontent-length: %d\r\n\r\n" % (encoding, len(body)) + body
        _, found, _, answer = taken(iter((sent[: len(sent) - cut],)), hang_up=bool(cut))
        return found, answer

    @pytest.mark.parametrize(
        ("encoding", "body"),
        [
            (b"gzip", PACKED),
            (b"X-GZIP", PACKED),
            (b"gzip", gzip.compress(TEXT[:5], mtime=0) + gzip.compress(TEXT[5:], mtime=0)),
            (b"gzip", PACKED + bytes(8)),
            (b"deflate", zlib.compress(TEXT)),
            (b"deflate", zlib.compress(TEXT)[2:-4]),
            (b"identity", TEXT),
            (b"utf-8", TEXT),
        ],
    )
    async def test_what_servers_send_is_unpacked(self, encoding: bytes, body: bytes) -> None:
        found, answer = self.unpacked(encoding, body)
        assert (found, answer.finished) == (TEXT, True)

    @pytest.mark.parametrize(
        ("encoding", "body"),
        [(b"gzip", TEXT), (b"gzip", PACKED[:-1]), (b"deflate", b"\xff\xff"), (b"br", TEXT), (b"zstd", TEXT)],
    )
    async def test_what_cannot_be_unpacked_is_told(self, encoding: bytes, body: bytes) -> None:
        _, answer = self.unpacked(encoding, body)
        assert isinstance(answer.failure, Undecodable)
        assert not answer.finished

    async def test_a_packed_body_that_is_cut_is_a_broken_one(self) -> None:
        assert isinstance(self.unpacked(b"gzip", PACKED, cut=3)[1].failure, BrokenOff)

    async def test_a_packed_body_that_lacks_its_end_is_not_finished_before_it_is_told(self) -> None:
        peer = Peer()
        answer = peer.ask()
        body = PACKED[:-1]
        peer.say(HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        assert (answer.take(), answer.finished, answer.failure) == (TEXT, False, None)
        assert (answer.take(), answer.finished, type(answer.failure)) == (b"", False, Undecodable)

    async def test_no_body_needs_no_unpacking(self) -> None:
        found, answer = self.unpacked(b"gzip", b"")
        assert (found, answer.finished) == (b"", True)


class TestSending:
    async def test_a_small_request_is_one_write(self) -> None:
        peer = Peer()
        peer.ask(b"x" * 1000)
        assert peer.transport.written == [b"POST /a HTTP/1.1\r\n\r\n" + b"x" * 1000]

    async def test_a_large_body_goes_on_as_the_peer_takes_it(self) -> None:
        peer = Peer()
        body = bytes(range(256)) * 4096
        peer.connection.pause_writing()
        answer = peer.ask(body)
        assert len(peer.transport.written) == 1
        for _ in range(4):
            peer.connection.resume_writing()
            peer.connection.pause_writing()
        assert b"".join(peer.transport.written[1:]) == body
        peer.say(WITH_LENGTH)
        assert (answer.take(), peer.released) == (TEXT, 1)

    async def test_an_answer_before_the_whole_body_went_out_ends_the_connection(self) -> None:
        for unsent in (True, False):
            peer = Peer()
            if unsent:
                peer.connection.pause_writing()
            else:
                peer.transport.unsent = 1  # the transport has it, and the peer does not take it
            answer = peer.ask(bytes(1_000_000) if unsent else b"{}")
            peer.say(WITH_LENGTH)
            assert (answer.take(), answer.finished) == (TEXT, True)
            assert (peer.released, peer.transport.closed) == (0, True)

    async def test_nothing_more_is_sent_after_the_end(self) -> None:
        peer = Peer()
        peer.connection.pause_writing()
        peer.ask(bytes(1_000_000))
        peer.hang_up()
        written = len(peer.transport.written)
        peer.connection.resume_writing()
        assert len(peer.transport.written) == written

    async def test_a_closed_answer_ends_its_connection_and_an_ended_one_does_not(self) -> None:
        peer = Peer()
        answer = peer.ask()
        peer.say(WITH_LENGTH[:-1])
        answer.close()
        answer.close()
        assert (peer.transport.closed, peer.times_dropped) == (True, 1)
        assert isinstance(answer.failure, BrokenOff)
        other = Peer()
        answer = other.ask()
        other.say(WITH_LENGTH)
        answer.close()
        assert (other.transport.closed, other.released, answer.take()) == (False, 1, TEXT)

    async def test_a_failure_that_nobody_waits_for_any_more_is_no_fault_of_the_loop(self) -> None:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        peer = Peer()
        answer = peer.ask()
        peer.hang_up()
        assert isinstance(answer.failure, BrokenOff)
        del answer, peer
        gc.collect()
        assert faults == []


PARTS = [
    HEAD,
    b"HTTP/1.1 103 X\r\n\r\n",
    b"content-length: 3\r\n",
    b"transfer-encoding: chunked\r\n",
    b"content-encoding: gzip\r\n",
    b"\r\n",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"abc",
    b"a: b\r\n",
    PACKED,
]


@given(st.lists(st.one_of(st.sampled_from(PARTS), st.binary(max_size=20)), max_size=12), st.booleans())
async def test_whatever_is_sent_the_answer_has_one_end(pieces: list[bytes], reset: bool) -> None:
    peer = Peer()
    answer = peer.ask()
    for piece in pieces:
        peer.say(piece)
    peer.hang_up(ConnectionResetError() if reset else None)
    read_whole(answer)
    assert answer.head.done()
    assert answer.ended
    assert answer.finished != (answer.failure is not None)
    if answer.head.exception() is not None:
        assert answer.failure is answer.head.exception()
    assert peer.times_dropped == 1
    assert peer.released <= 1


class TestWaitingRequests:
    async def test_a_request_that_is_given_up_in_its_own_turn_never_leaves(self) -> None:
        peer = Unhurried()
        answer = peer.ask()
        answer.close()
        peer.connection.send_on()
        assert peer.transport.written == []

    async def test_an_answer_that_came_before_its_request_left_gives_no_connection_back(self) -> None:
        peer = Unhurried()
        peer.ask()
        peer.say(WITH_LENGTH)
        assert (peer.released, peer.transport.closed) == (0, True)

    async def test_a_request_is_not_written_to_a_peer_that_is_gone(self) -> None:
        peer = Unhurried()
        peer.ask()
        peer.transport.closed = True
        peer.connection.send_on()
        assert peer.transport.written == []


class Unhurried(Peer):
    """Whose turn of the event loop does not end."""

    def at_turn_end(self, write: Callable[[], None]) -> None:
        pass
