"""Requests are read in one way only: whatever someone on the way might read in another one is refused."""

import json

import pytest

from tests.gateway.http.hosted import HOST, chunked, get, hosted, post

LINE = b"GET /echo HTTP/1.1\r\n"
HEAD = LINE + HOST
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SMUGGLED = get("/smuggled")

REFUSED = {
    "length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "the same length twice": HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": HEAD + b"Content-Length: 3, 3\r\n\r\nabc",
    "a signed length": HEAD + b"Content-Length: +3\r\n\r\nabc",
    "a negative length": HEAD + b"Content-Length: -3\r\n\r\nabc",
    "a length in hex": HEAD + b"Content-Length: 0x3\r\n\r\nabc",
    "a length with an underscore": HEAD + b"Content-Length: 1_0\r\n\r\nabc",
    "a length with a gap": HEAD + b"Content-Length: 1 2\r\n\r\nabc",
    "no length": HEAD + b"Content-Length: \r\n\r\nabc",
    "a length beyond numbers": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
    "a length with more digits than a number has": HEAD + b"Content-Length: " + b"0" * 5000 + b"3\r\n\r\nabc",
    "another coding": HEAD + b"Transfer-Encoding: identity\r\n\r\nabc",
    "an unknown coding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\nabc",
    "two codings": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunks that are not last": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunks twice": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an empty coding": HEAD + b"Transfer-Encoding: \r\n\r\n0\r\n\r\n",
    "a coding behind a control character": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /echo HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk size of no number": CHUNKED + b"xyz\r\nabc\r\n0\r\n\r\n",
    "a negative chunk size": CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n",
    "a signed chunk size": CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n",
    "a prefixed chunk size": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "a chunk size with an underscore": CHUNKED + b"1_0\r\nabc\r\n0\r\n\r\n",
    "a chunk size with a space": CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n",
    "a chunk size after a space": CHUNKED + b" 3\r\nabc\r\n0\r\n\r\n",
    "an empty chunk size": CHUNKED + b"\r\nabc\r\n0\r\n\r\n",
    "a chunk size beyond numbers": CHUNKED + b"fffffffffffffffff\r\nabc",
    "a chunk longer than its size": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "a chunk without its line break": CHUNKED + b"3\r\nabc0\r\n\r\n",
    "bare line feeds around chunks": CHUNKED + b"3\nabc\n0\n\n",
    "a line feed in a chunk extension": CHUNKED + b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "a carriage return in a chunk extension": CHUNKED + b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "a length in a trailer": CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n",
    "a coding in a trailer": CHUNKED + b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a folded line": HEAD + b"A: b\r\n c\r\n\r\n",
    "a folded line after nothing": HEAD + b"A:\r\n c\r\n\r\n",
    "a folded first line": LINE + b" Host: x\r\n\r\n",
    "bare line feeds": b"GET /echo HTTP/1.1\nHost: x\n\n",
    "a bare line feed": HEAD + b"A: b\nC: d\r\n\r\n",
    "a bare line feed at the end": HEAD + b"A: b\r\n\n",
    "a bare carriage return": HEAD + b"A: b\rC: d\r\n\r\n",
    "two carriage returns": HEAD + b"A: b\r\r\n\r\n",
    "a space before the colon": HEAD + b"A : b\r\n\r\n",
    "a tab before the colon": HEAD + b"A\t: b\r\n\r\n",
    "no colon": HEAD + b"A\r\n\r\n",
    "an empty name": HEAD + b": b\r\n\r\n",
    "a name with a bracket": HEAD + b"A(: b\r\n\r\n",
    "a name that is not ASCII": HEAD + "Ä: b\r\n\r\n".encode(),
    **{f"the character {code:#x}": HEAD + b"A: b%cc\r\n\r\n" % code for code in (0, 1, 8, 0xB, 0xC, 0x1B, 0x1F, 0x7F)},
    "two hosts": HEAD + HOST + b"\r\n",
    "no host": LINE + b"\r\n",
    "two keys": HEAD + b"Authorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n",
    "a tab in the line": b"GET /a\tb HTTP/1.1\r\nHost: x\r\n\r\n",
    "a space in the path": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "a path that is not ASCII": "GET /ä HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
    "a fragment": b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n",
    "a path without its slash": b"GET a HTTP/1.1\r\nHost: x\r\n\r\n",
    "an address with half of a bracket": b"GET http://[::1/a HTTP/1.1\r\nHost: x\r\n\r\n",
    "an address with a bracket in its host": b"GET http://a]b/c HTTP/1.1\r\nHost: x\r\n\r\n",
    "a tunnel": b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    "an unknown method": b"FOO / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a method in small letters": b"get / HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2": b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
    "HTTP/2 that is known to be spoken": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: x\r\n\r\n",
    "another protocol": b"GET / HTTPS/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
async def test_what_can_be_read_in_two_ways_is_refused_and_nothing_after_it_is_read(sent: bytes) -> None:
    async with hosted() as at, at.client() as client:
        await client.send(sent + SMUGGLED)
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (400, "close")
        assert await client.end() == b""
        assert not any(request.path == "/smuggled" for request in at.service.requests)


LIMITS = {
    "a long target": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "a target without an end": (b"GET /" + b"a" * 100_000, 414),
    "a long header": (HEAD + b"A: " + b"a" * 17_000 + b"\r\n\r\n", 431),
    "a header without an end": (HEAD + b"A: " + b"a" * 100_000, 431),
    "a name without an end": (HEAD + b"a" * 100_000, 431),
    "many headers": (HEAD + b"".join(b"A-%d: b\r\n" % number for number in range(101)) + b"\r\n", 431),
    "one header many times": (HEAD + b"A: b\r\n" * 101 + b"\r\n", 431),
    "a large head": (HEAD + b"".join(b"A-%d: %b\r\n" % (n, b"b" * 9000) for n in range(20)) + b"\r\n", 431),
    "line breaks without an end": (b"\r\n" * 60_000, 431),
}


@pytest.mark.parametrize(("sent", "expected"), LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("piece", [1 << 20, 1000], ids=["at once", "in pieces"])
async def test_a_head_beyond_the_limits_is_refused(sent: bytes, expected: int, piece: int) -> None:
    async with hosted() as at, at.client() as client:
        await client.send(*[sent[start : start + piece] for start in range(0, len(sent), piece)])
        assert (await client.answer())[0] == expected
        assert await client.end() == b""


async def test_heads_at_the_limits_are_read() -> None:
    async with hosted() as at:
        assert (await at.ask(b"GET /" + b"a" * 8100 + b" HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200
        assert (await at.ask(HEAD + b"".join(b"A-%d: b\r\n" % n for n in range(99)) + b"\r\n"))[0] == 200
        assert (await at.ask(HEAD + b"A: " + b"a" * 16_000 + b"\r\n\r\n"))[0] == 200


async def test_endless_talk_beside_the_bytes_of_a_body_breaks_it() -> None:
    async with hosted() as at:
        for talk in (b"3;" + b"a" * 200_000, b"3\r\nabc\r\n0\r\nA: " + b"a" * 200_000):
            assert (await at.ask(CHUNKED + talk))[0] == 400


async def test_headers_come_in_lower_case_joined_and_without_the_space_around_them() -> None:
    async with hosted() as at:
        _, _, body = await at.ask(get("/echo?a=%20b", b"X-Two:  a \t", b"x-two: b", b"X-Empty:", "X-Far: ä".encode()))
    assert json.loads(body)[:3] == [
        "GET",
        "/echo?a=%20b",
        {"host": "x", "x-two": "a, b", "x-empty": "", "x-far": "ä"},
    ]


async def test_trailers_are_passed_over_and_belong_to_no_request() -> None:
    sent = CHUNKED + b"3\r\nabc\r\n0\r\nAuthorization: Bearer b\r\nHost: y\r\n\r\n" + get("/echo")
    async with hosted() as at, at.client() as client:
        await client.send(sent)
        assert json.loads((await client.answer())[2])[3] == "abc"
        assert json.loads((await client.answer())[2])[2] == {"host": "x"}


async def test_an_address_with_a_host_in_it_is_a_path_like_any_other() -> None:
    async with hosted() as at:
        await at.ask(b"GET http://other/echo/a%20b?c=d HTTP/1.1\r\nHost: x\r\n\r\n")
        (request,) = at.service.requests
    assert (request.path, request.query_string, request.decoded_path) == ("/echo/a%20b", "c=d", "/echo/a b")


@pytest.mark.parametrize("asked", [post("/echo", b"abc"), chunked("/echo", b"a", b"bc")], ids=["length", "chunks"])
@pytest.mark.parametrize("cut", [1 << 20, 40])
async def test_a_question_for_another_protocol_is_passed_over_with_its_body_read(asked: bytes, cut: int) -> None:
    """As Java's client asks with every request."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"
    sent = asked.replace(b"\r\n\r\n", b"\r\n" + upgrade, 1) * 2 + get("/echo")
    async with hosted() as at, at.client() as client:
        await client.send(*[sent[start : start + cut] for start in range(0, len(sent), cut)])
        for _ in range(2):
            assert json.loads((await client.answer())[2])[3] == "abc"
        assert (await client.answer())[0] == 200
