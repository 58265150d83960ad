"""The local models in a process of their own, where several processes serve one port."""

import asyncio
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gateway.config import Config
from gateway.config.sections.local import LocalProvider
from gateway.config.sections.tools import Fetch
from gateway.engine_process.host import Host
from gateway.engine_process.proxy import EngineProxy
from gateway.fetching.guarded import GuardedFetcher
from gateway.server.inheritance import Inheritance
from gateway.server.provider_building import build_provider_of
from gateway.server.siblings import Siblings

__all__ = ["local_provider", "run_engine", "with_engine"]


def local_provider(config: Config) -> str | None:
    """The name of the provider of local models; None: there is none."""
    return next((name for name, entry in config.providers.items() if isinstance(entry, LocalProvider)), None)


def with_engine(config: Config, inherited: Inheritance, engine: Path, *, is_first: bool) -> Inheritance:
    """With what stands for the local models here. Raises ValueError where a reload would change them."""
    name = local_provider(config)
    if name is None or name in inherited.providers:
        return inherited
    if not is_first:
        raise ValueError(f"providers.{name}: a change of local models needs a restart where several processes serve")
    proxy = EngineProxy(name, engine, first_token_s=config.reliability.timeouts.first_token_s)
    return replace(inherited, providers={**inherited.providers, name: proxy})


async def run_engine(config: Config, siblings: Siblings, ready: Callable[[], None]) -> int:
    """Runs them until SIGTERM. Raises ValueError and ImportError as building a provider does."""
    name = local_provider(config)
    assert name is not None
    fetcher = GuardedFetcher(config.run.fetch or Fetch())
    host = Host(build_provider_of(config, name, fetcher), _fault)
    stop = asyncio.Event()
    siblings.follow_parent()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await host.start(siblings.engine)
    ready()
    await stop.wait()
    await host.aclose()
    await fetcher.aclose()
    return 0


def _fault(error: BaseException) -> None:
    print(f"gateway: a fault in the engine's process: {type(error).__name__}", file=sys.stderr, flush=True)
