"""Bodies that are sent while they arrive."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from tests.providers.remote.wire_server import answering, client_of, serving

pytestmark = pytest.mark.timeout(20)


async def test_between_the_pieces_of_a_body_the_upstream_is_heard() -> None:
    """So that what it says ahead of hanging up is read before a piece meets the closed connection."""
    turns = 0
    sent_at: list[int] = []

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def pieces() -> AsyncGenerator[bytes, None]:
        for _ in range(20):
            sent_at.append(turns)
            yield b"x" * 1000

    turning = asyncio.ensure_future(turn())
    answer_bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    async with serving(answering(answer_bytes)) as base_url, client_of(base_url) as client:
        with await client.forward("POST", "/a", {}, pieces(), length=20_000) as answer:
            assert await answer.body() == b"ok"
    turning.cancel()
    assert len(set(sent_at)) == 20
