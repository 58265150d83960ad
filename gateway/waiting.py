"""Waiting for what may not come."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

__all__ = ["awake_for", "set_within"]

_PARTS = 5


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Waits for the event, at most so long; whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


@asynccontextmanager
async def awake_for(seconds: float) -> AsyncGenerator[None]:
    """As asyncio.timeout, for a short limit on somebody else: a time in which this process itself could not look for an
    answer (one long turn of its loop, a processor that others have) counts as a fifth of it at most."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as limit:

        def pass_part(left: int) -> None:
            nonlocal timer
            if left:
                timer = loop.call_later(seconds / _PARTS, pass_part, left - 1)
            else:
                limit.reschedule(loop.time())

        pass_part(_PARTS)
        try:
            yield
        finally:
            timer.cancel()
