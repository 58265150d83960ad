"""Any cut of a stream of requests gives the same answers; any garbage gives an answer or a close."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.http.hosted import chunked, get, hosted, post

PATHS = st.sampled_from(["/echo", "/echo?a=%20b", "/stream", "/stream?sized", "/empty", "/blind"])
BODIES = st.binary(max_size=300)
REQUESTS = st.one_of(
    st.builds(get, PATHS),
    st.builds(post, PATHS, BODIES),
    st.builds(lambda path, chunks: chunked(path, *[chunk for chunk in chunks if chunk]), PATHS, st.lists(BODIES)),
    st.builds(lambda path: get(path, b"Connection: Upgrade", b"Upgrade: h2c"), PATHS),
)
PARTS = st.sampled_from(
    [
        *(
            b"GET",
            b"POST",
            b" ",
            b"/echo",
            b"/stream",
            b"HTTP/1.1",
            b"HTTP/1.0",
            b"\r\n",
            b"\r\n\r\n",
            b"\n",
            b"\r",
            b":",
        ),
        *(b"Host: x\r\n", b"Content-Length: 3\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"chunked"),
        *(b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"Connection: upgrade\r\n", b"Upgrade: websocket\r\n"),
        *(
            b"Content-Encoding: gzip\r\n",
            b"abc",
            b"3\r\nabc\r\n",
            b"0\r\n\r\n",
            b"0",
            b"ffff",
            b";",
            b":",
            b"\x00",
            b"\xff",
        ),
        get("/echo"),
        post("/echo", b"abc"),
        chunked("/echo", b"abc"),
    ]
)


def on_the_loop_that_serves(run: Callable[[], Coroutine[None, None, None]]) -> None:
    if sys.platform == "win32":
        asyncio.run(run())
        return
    import uvloop

    uvloop.run(run())


@settings(max_examples=60)
@given(st.lists(REQUESTS, min_size=1, max_size=6), st.data())
def test_any_cut_gives_the_same_answers(requests: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12), label="cuts"))
    pieces = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    async def answers(sent: list[bytes]) -> list[tuple[int, bytes]]:
        async with hosted() as at, at.client() as client:
            sending = asyncio.ensure_future(_paced(client.send, sent))
            found = [(await client.answer())[::2] for _ in requests]
            await sending
            return found

    async def both() -> None:
        assert await answers(pieces) == await answers([stream])

    on_the_loop_that_serves(both)


async def _paced(send: Callable[..., Awaitable[None]], pieces: list[bytes]) -> None:
    for piece in pieces:
        await send(piece)
        await asyncio.sleep(0.0005)  # so that it is read alone


@settings(max_examples=150)
@given(st.lists(st.one_of(PARTS, st.binary(max_size=20)), max_size=20))
def test_garbage_gets_an_answer_or_a_close_and_leaves_nothing_behind(parts: list[bytes]) -> None:
    async def ask() -> None:
        async with hosted(head_s=0.02) as at, at.client() as client:
            client.writer.write(b"".join(parts))
            leaving = asyncio.get_running_loop().call_later(0.02, client.writer.write_eof)
            found = await client.end()
            leaving.cancel()
            assert not found or found.startswith(b"HTTP/1.1 ")
            async with at.client() as other:
                await other.send(get("/echo"))
                assert json.loads((await other.answer())[2])[0] == "GET"

    on_the_loop_that_serves(ask)
