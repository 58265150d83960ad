"""The database that run.yaml names, for commands. No gateway needs to run."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from gateway.cli.failure import CommandFailed

if TYPE_CHECKING:
    from gateway.config import Config
    from gateway.storage.opening import Stores
    from gateway.storage.place import Place

__all__ = ["place_of", "with_stores"]

T = TypeVar("T")


def place_of(config: "Config", lost: str) -> "Place":
    """Where what lasts is kept. Raises CommandFailed, with what is lost, where that is the gateway's memory."""
    from gateway.storage.place import MemoryPlace, parse_place

    place = parse_place(None if config.run.storage is None else config.run.storage.url.get_secret_value())
    if isinstance(place, MemoryPlace):
        raise CommandFailed(f"storage.url is memory, so that {lost}; name a database")
    return place


def with_stores(place: "Place", act: "Callable[[Stores], Awaitable[T]]") -> T:
    """What `act` gives, with the database open. Raises CommandFailed."""
    from adapters.canonical.errors import GatewayError
    from gateway.storage.place import SchemaMismatch

    try:
        return asyncio.run(_opened(place, act))
    except (GatewayError, SchemaMismatch) as error:
        raise CommandFailed(str(error)) from None


async def _opened(place: "Place", act: "Callable[[Stores], Awaitable[T]]") -> T:
    from gateway.storage.bounds import Bounds
    from gateway.storage.opening import open_stores

    stores = await open_stores(place, Bounds(float("inf"), 2**63), time.time)
    try:
        return await act(stores)
    finally:
        await stores.aclose()
