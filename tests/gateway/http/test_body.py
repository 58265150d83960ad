"""Bodies: packed and plain, with an upper bound on what waits unread."""

import asyncio
import gzip
import json
import zlib

import pytest

from adapters.inflater import Inflater
from gateway.http.body import Body, BrokenBody
from tests.gateway.http.hosted import chunked, get, hosted, post, until

TEXT = b"all work and no play " * 20_000


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED = {
    "gzip": gzip.compress(TEXT),
    "members": gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]),
    "deflate": zlib.compress(TEXT),
    "bare deflate": bare_deflate(TEXT),
}


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize("in_chunks", [False, True])
async def test_a_packed_body_is_unpacked(coding: str, in_chunks: bool) -> None:
    packed = PACKED[coding]
    line = b"Content-Encoding: " + (b"deflate" if "deflate" in coding else b"GZip")
    if in_chunks:
        pieces = [packed[at : at + 100] for at in range(0, len(packed), 100)]
        sent = chunked("/echo", *pieces).replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n", 1)
    else:
        sent = post("/echo", packed, line)
    async with hosted() as at:
        assert json.loads((await at.ask(sent))[2])[3].encode() == TEXT


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_body_that_is_not_what_its_coding_says_is_broken(coding: str) -> None:
    async with hosted() as at, at.client() as client:
        await client.send(post("/echo", b"not packed at all", b"Content-Encoding: " + coding.encode()))
        assert (await client.answer())[0] == 400
        await client.send(get("/echo"))
        assert (await client.answer())[0] == 200


@pytest.mark.parametrize("packed", PACKED)
async def test_a_packed_body_that_is_cut_short_is_broken(packed: str) -> None:
    line = b"Content-Encoding: " + (b"deflate" if "deflate" in packed else b"gzip")
    async with hosted() as at:
        assert (await at.ask(post("/echo", PACKED[packed][:-10], line)))[0] == 400


async def test_what_is_unpacked_comes_in_bounded_steps() -> None:
    body = Body(lambda halts: None, "gzip")
    body.feed(gzip.compress(b" " * 20_000_000))
    body.end()
    sizes = []
    while piece := await body.read():
        sizes.append(len(piece))
    assert sum(sizes) == 20_000_000
    assert max(sizes) <= 1 << 18


async def test_nothing_of_a_refused_body_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    monkeypatch.setattr(Inflater, "feed", lambda self, packed: steps.append(packed))
    packed = gzip.compress(b" " * 64_000_000)
    async with hosted() as at, at.client() as client:
        await client.send(post("/blind", packed, b"Content-Encoding: gzip"))
        assert (await client.answer())[0] == 401
        await client.send(get("/empty"))
        assert (await client.answer())[0] == 204
    assert not steps


async def test_a_body_that_nobody_reads_waits_with_its_client() -> None:
    async with hosted() as at, at.client() as client:
        sending = asyncio.ensure_future(client.send(post("/wait", b"x" * 50_000_000)))
        await at.service.waiting.wait()
        (connection,) = at.connections.connections
        await until(lambda: not connection._is_reading)
        assert at.service.requests[0].body._held < 1_000_000
        assert not sending.done()
        at.service.release.set()
        assert (await client.answer())[2] == b"waited"
        await sending
        await client.send(get("/empty"))
        assert (await client.answer())[0] == 204


async def test_a_large_body_is_read_whole() -> None:
    body = bytes(range(256)) * 20_000
    async with hosted() as at:
        pieces = [body[at : at + 77_777] for at in range(0, len(body), 77_777)]
        for sent in (post("/echo", body), chunked("/echo", *pieces)):
            assert json.loads((await at.ask(sent))[2])[3] == body.decode("latin-1")


async def test_who_reads_is_told_when_the_rest_will_not_come() -> None:
    body = Body(lambda halts: None)
    body.feed(b"a")
    assert await body.read() == b"a"
    reading = asyncio.ensure_future(body.read())
    await asyncio.sleep(0)
    body.fail(BrokenBody("a chunk without a size"))
    with pytest.raises(BrokenBody, match="chunk"):
        await reading
    assert body.is_broken
