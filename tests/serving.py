"""The gateway on a real loopback socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.config import parse_config
from gateway.server.app import Surroundings, build_app
from gateway.server.lifetime import App
from gateway.server.log import Output
from providers.registry import provider_types

__all__ = ["listening", "serving"]


@asynccontextmanager
async def listening(app: App, *, backlog: int = 100) -> AsyncIterator[str]:
    """Its address, without a path, while it serves. It is closed when the block is left, whatever still runs."""
    await app.start()
    server = await asyncio.get_running_loop().create_server(app.connections, "127.0.0.1", 0, backlog=backlog)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await app.drain(0)
        await app.aclose()


@asynccontextmanager
async def serving(run_yaml: str, *, log: Output | None = None) -> AsyncIterator[str]:
    """The same of a gateway with this configuration."""
    config = parse_config(run_yaml, {}, provider_types=provider_types())
    async with listening(build_app(config, around=Surroundings(log=log))) as url:
        yield url
