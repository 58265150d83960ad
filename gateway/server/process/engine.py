"""The local models in a process of their own, where several processes serve one port."""

import asyncio
import json
import signal
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from adapters.canonical.errors import InvalidRequest
from gateway.config import Config, ConfigError
from gateway.config.sections.local import LocalProvider
from gateway.config.sections.tools import Fetch
from gateway.engine_process.host import Host
from gateway.engine_process.proxy import EngineProxy
from gateway.fetching.guarded import GuardedFetcher
from gateway.server.inheritance import Inheritance
from gateway.server.process.siblings import Siblings
from gateway.server.process.stderr import say
from gateway.server.provider_building import build_provider_of

__all__ = ["Hosts", "local_provider", "run_engine", "with_engine"]

_LOOK_S = 2.0
"""How often models that a reload replaced are looked at: they go once nobody is connected to them."""


def local_provider(config: Config) -> str | None:
    """The name of the provider of local models; None: there is none."""
    return next((name for name, entry in config.providers.items() if isinstance(entry, LocalProvider)), None)


def with_engine(config: Config, inherited: Inheritance, siblings: Siblings) -> Inheritance:
    """With what stands for the local models here. Raises ValueError where no process can run them."""
    name = local_provider(config)
    if name is None or name in inherited.providers:
        return inherited
    if not siblings.has_engine:
        raise ValueError(f"providers.{name}: the first local models need a restart where several processes serve")
    socket = siblings.engine(_settings_of(config, name))
    proxy = EngineProxy(name, socket, first_token_s=config.reliability.timeouts.first_token_s)
    return replace(inherited, providers={**inherited.providers, name: proxy})


def _settings_of(config: Config, name: str) -> str:
    """A short word for everything that these models are built from (see `unchanged_providers`)."""
    sections = (config.providers[name], config.reliability.timeouts, config.run.fetch)
    said = [None if section is None else section.model_dump(mode="json") for section in sections]
    written = json.dumps([*said, config.server.request_templates], sort_keys=True)
    return sha256(written.encode()).hexdigest()[:16]


class Hosts:
    """The models of the configuration, each of its states behind a socket file of its own.

    After a reload the ones before serve on until every process has turned to the new ones.
    """

    def __init__(self, siblings: Siblings, load: Callable[[], Config]) -> None:
        self._siblings = siblings
        self._load = load
        self._hosts: dict[Path, Host] = {}
        self._current: Path | None = None
        self._fetchers: list[GuardedFetcher] = []
        self._reloading = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        """How many states of the models are served."""
        return len(self._hosts)

    async def take(self, config: Config) -> None:
        """Serves the models of this configuration. Raises ValueError and ImportError as building a provider does."""
        name = local_provider(config)
        if name is None:
            return  # nobody will ask for them
        socket = self._siblings.engine(_settings_of(config, name))
        if socket not in self._hosts:
            fetcher = GuardedFetcher(config.run.fetch or Fetch())
            self._fetchers.append(fetcher)
            host = Host(build_provider_of(config, name, fetcher), _fault)
            socket.unlink(missing_ok=True)  # of the process before
            await host.start(socket)
            self._hosts[socket] = host
        before, self._current = self._current, socket
        if before is not None and before != socket:
            task = asyncio.create_task(self._retire(before))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    async def reload(self) -> None:
        """Takes the file as it is now. Raises InvalidRequest; what is served then goes on."""
        async with self._reloading:
            try:
                await self.take(await asyncio.to_thread(self._load))
            except (ConfigError, ValueError, ImportError) as error:
                raise InvalidRequest(str(error), code="invalid_configuration") from error

    async def aclose(self) -> None:
        for task in list(self._retiring):
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        for host in self._hosts.values():
            await host.aclose()
        for fetcher in self._fetchers:
            await fetcher.aclose()

    async def _retire(self, socket: Path) -> None:
        is_used = True
        while is_used:
            await asyncio.sleep(_LOOK_S)
            is_used = self._hosts[socket].is_used
        if socket != self._current:  # else a reload has brought them back
            await self._hosts.pop(socket).aclose()


async def run_engine(config: Config, siblings: Siblings, load: Callable[[], Config], ready: Callable[[], None]) -> int:
    """Runs them until SIGTERM. Raises ValueError and ImportError as building a provider does."""
    hosts = Hosts(siblings, load)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await hosts.take(config)
    await siblings.start(lambda: None, hosts.reload)
    ready()
    await stop.wait()
    await siblings.aclose()
    await hosts.aclose()
    return 0


def _fault(error: BaseException) -> None:
    say(f"a fault in the engine's process: {type(error).__name__}")
