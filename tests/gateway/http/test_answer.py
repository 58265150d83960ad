"""Heads of answers: what stands in them, and what may not."""

import asyncio
import re

import pytest

from gateway.http.answer import Answer, render_answer
from gateway.http.body import Body
from gateway.http.outflow import Outflow
from gateway.http.request import Request
from gateway.http.stream import Stream


class Written:
    """A connection that remembers what is written."""

    is_lost = aborted = False
    task = peer = None

    def __init__(self) -> None:
        self.data = b""
        self.outflow = Outflow(asyncio.Transport(), self.abort)

    def write(self, data: bytes) -> None:
        self.data += data

    def throttle(self, halts: bool) -> None: ...

    def upgrade(self, upgraded: object) -> bytes:
        return b""

    def close(self, *, has_more: bool) -> None: ...

    def abort(self) -> None:
        self.aborted = True


def asked(wire: Written, method: str = "GET") -> Request:
    return Request(method, "/", {"host": "x"}, Body(lambda halts: None), wire)


def test_an_answer_is_its_headers_its_length_and_the_date() -> None:
    found = render_answer(Answer(status=404, body=b"gone", headers={"A": "b", "C": "ä"}), "GET", "")
    head = "HTTP/1.1 404 Not Found\r\nA: b\r\nC: ä\r\nContent-Length: 4\r\nDate: "
    assert found.startswith(head.encode())
    assert re.fullmatch(rb"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n\r\ngone", found[len(head.encode()) :])


@pytest.mark.parametrize("status", [499, 299, 418])
def test_any_status_has_its_line(status: int) -> None:
    assert render_answer(Answer(status=status), "GET", "").startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("header", [{"A": "b\r\nSet-Cookie: c"}, {"A": "b\nC: d"}, {"A": "b\rC"}, {"A\r\nB": "c"}])
def test_a_header_with_a_line_break_is_never_sent(header: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="line break"):
        render_answer(Answer(headers=header), "GET", "")


def test_the_head_of_a_stream_goes_out_with_its_first_piece() -> None:
    wire = Written()
    stream = Stream(asked(wire), headers={})
    assert wire.data == b""
    stream.write(b"abc")
    assert wire.data.endswith(b"\r\n\r\n3\r\nabc\r\n")
    stream.end()
    assert wire.data.endswith(b"3\r\nabc\r\n0\r\n\r\n")


def test_an_empty_piece_does_not_end_a_stream_in_chunks() -> None:
    wire = Written()
    stream = Stream(asked(wire), headers={})
    stream.write(b"")
    assert b"\r\n0\r\n" not in wire.data
    stream.end(b"end")
    assert wire.data.endswith(b"\r\n\r\n3\r\nend\r\n0\r\n\r\n")


def test_a_stream_that_is_not_as_long_as_it_said_is_no_whole_answer() -> None:
    wire = Written()
    stream = Stream(asked(wire), headers={"Content-Length": "5"})
    stream.write(b"abc")
    with pytest.raises(ValueError, match="longer"):
        stream.write(b"def")
    stream.end()
    assert wire.aborted


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_a_stream_without_a_body_is_its_head(method: str, status: int) -> None:
    wire = Written()
    stream = Stream(asked(wire, method), status=status, headers={})
    stream.write(b"abc")
    stream.end(b"def")
    assert wire.data.endswith(b"GMT\r\n\r\n")
    assert (b"chunked" in wire.data) is (method == "HEAD")
