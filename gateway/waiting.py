"""Waiting for what may not come."""

import asyncio

__all__ = ["set_within"]


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Waits for the event, at most so long; whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
