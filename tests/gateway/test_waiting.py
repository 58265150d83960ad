import asyncio
import socket
import time

import pytest

from gateway.waiting import awake_for


async def test_silence_ends_a_wait() -> None:
    with pytest.raises(TimeoutError):
        async with awake_for(0.02):
            await asyncio.Event().wait()


async def test_an_answer_that_came_while_this_process_was_busy_is_taken() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        loop.call_soon(time.sleep, 0.1)
        loop.call_soon(theirs.send, b"answer")
        async with awake_for(0.05):
            assert await loop.sock_recv(ours, 6) == b"answer"
