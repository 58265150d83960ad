"""`gateway serve`: binds, serves, reloads, and stops in order. Owns sockets and signals of one process."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from adapters.canonical.errors import Conflict, GatewayError, InvalidRequest
from gateway.config import Config, ConfigError, Redactor, load_config
from gateway.http.server import Connections
from gateway.server.app import Surroundings, build_app
from gateway.server.inheritance import Inheritance
from gateway.server.lifetime import App
from gateway.server.process.engine import local_provider, run_engine, with_engine
from gateway.server.process.listening import (
    Bound,
    CannotListen,
    address_of,
    allow_many_sockets,
    bind_all,
    most_connections,
    rebind,
)
from gateway.server.process.live import Live, fixed_keys
from gateway.server.process.service_manager import tell_ready, tell_reloading, tell_stopping
from gateway.server.process.siblings import Siblings
from gateway.server.process.stderr import Stderr, say
from gateway.server.process.tls import ServerTls
from gateway.server.process.workers import CANNOT_START, Workers
from providers.registry import provider_types

__all__ = ["serve"]

_CLOSE_S = 1.0
"""What connections get to end after the drain."""


def serve(config: Config, *, config_path: Path) -> int:
    """Serves until SIGTERM or SIGINT; gives the exit status. A failure to start is one line on stderr.

    The port is bound first and /healthz answers at once; models load meanwhile. SIGHUP reloads the file. A signal stops
    accepting and drains; a second one ends the process at once.
    """
    count = config.server.workers
    allow_many_sockets()
    with ExitStack() as sockets:
        try:
            bound = bind_all(config.server, sockets, shared=count > 1)
        except CannotListen as error:
            print(f"gateway: {error}", file=sys.stderr)
            return 1
        say_where = partial(_say_where, config, bound, config_path)
        if count == 1:
            return _guarded(config, config_path, lambda: _Process(config, config_path, bound, say_where).run())
        engine = partial(_serve_engine, config, config_path) if local_provider(config) is not None else None
        workers = Workers(count, say_where, engine, stopping=bound.withdraw)
        return workers.run(partial(_serve_among, config, bound, config_path))


def _serve_among(
    config: Config, like: Bound, config_path: Path, siblings: Siblings, listens: Callable[[], None]
) -> int:
    """One of several processes; `listens` is told that it does."""
    config = _now(config, config_path, siblings)
    with ExitStack() as sockets:
        bound = rebind(like, sockets)
        run = _Process(config, config_path, bound, listens, siblings).run
        return _guarded(config, config_path, run) and CANNOT_START


def _serve_engine(config: Config, config_path: Path, siblings: Siblings, ready: Callable[[], None]) -> int:
    """The process of the local models."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it is told by those that serve
    config = _now(config, config_path, siblings)
    load = partial(_load, config_path)
    return _guarded(config, config_path, lambda: run_engine(config, siblings, load, ready))


def _load(config_path: Path) -> Config:
    """Raises ConfigError."""
    return load_config(config_path, os.environ, provider_types=provider_types())


def _now(config: Config, config_path: Path, siblings: Siblings) -> Config:
    """The configuration for a process that begins: where it stands in for one that has ended, the others may have taken
    run.yaml anew since the start."""
    if not siblings.have_reloaded:
        return config
    try:
        found = _load(config_path)
    except ConfigError:
        say(f"{config_path} has faults; the configuration of the start is used")
        return config
    return config if fixed_keys(config, found) else found


def _guarded(config: Config, config_path: Path, run: Callable[[], Awaitable[int]]) -> int:
    logging.basicConfig(format="gateway: %(message)s")  # as all lines that are of no request
    try:
        if sys.platform == "win32":
            asyncio.run(_to_its_end(run))
        else:
            import uvloop

            uvloop.run(_to_its_end(run))
    except (ValueError, ImportError) as error:
        print(f"gateway: {config_path}: {Redactor(config.secrets)(str(error))}", file=sys.stderr)
    return 1


async def _to_its_end(run: Callable[[], Awaitable[int]]) -> None:
    """Ends the process once everything is closed. The loop, and the system, would wait for threads that nobody can
    stop: those that look up a name which no server answers for."""
    status = await run()
    logging.shutdown()
    os._exit(status)


class _Process:
    """One process that serves; `listens` is told that it takes connections. `siblings` are the others; None: none."""

    def __init__(
        self,
        config: Config,
        config_path: Path,
        bound: Bound,
        listens: Callable[[], None],
        siblings: Siblings | None = None,
    ) -> None:
        self._config = config
        self._path = config_path
        self._bound = bound
        self._listens = listens
        self._siblings = siblings
        self._tls = ServerTls(config.server.tls) if config.server.tls is not None else None
        self._reloads: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        live = self._live = Live(self._config, partial(_load, self._path), self._build, self._took)
        _settle_memory()
        # Whoever begins a generator here closes it, so the loop need not know each: 2% of the CPU of a request.
        sys.set_asyncgen_hooks(firstiter=None)
        stop = asyncio.Event()
        self._on_signals(stop)
        idle_s, most = self._config.server.idle_s, most_connections()
        main, admin = (Connections(service, idle_s=idle_s, most=most) for service in (live.main, live.admin))
        tls = self._tls.context if self._tls is not None else None
        main_tls = tls if self._config.server.unix is None else None  # a socket file has no need of it
        servers = [await main.listen(each, main_tls) for each in self._bound.main]
        admin_servers = [await admin.listen(each, tls) for each in self._bound.admin]
        self._listens()
        try:
            await self._until_stopped(stop)
            if self._siblings is None:
                tell_stopping()
            self._bound.withdraw()
            for server in servers:
                server.close()
            main.end_idle()
            self._say_what_runs()
            await live.drain(self._config.server.drain_s)
        finally:
            for server in (*servers, *admin_servers):
                server.close()
            for connections in (main, admin):
                await connections.shutdown(_CLOSE_S)
            if self._siblings is not None:
                await self._siblings.aclose()
            await live.aclose()
        return 0

    def _say_what_runs(self) -> None:
        """For whoever waits for the process to end."""
        count = self._live.running
        if count:
            requests = "1 request" if count == 1 else f"{count} requests"
            again = "" if self._siblings is not None else "; a second signal ends them at once"
            limit_s = self._config.server.drain_s
            say(f"stopping: waits up to {limit_s:g} s for {requests}{again}")

    def _build(self, config: Config, inherited: Inheritance) -> App:
        snapshots = self._siblings.snapshots if self._siblings is not None else None
        if self._siblings is not None:
            inherited = with_engine(config, inherited, self._siblings)
        return build_app(
            config,
            around=Surroundings(log=Stderr()),
            inherited=inherited,
            reload=self._reload_all,
            snapshots=snapshots,
        )

    def _took(self, config: Config) -> None:
        self._config = config
        if self._tls is not None and config.server.tls is not None:
            self._tls.take(config.server.tls)

    async def _reload_all(self) -> None:
        """This process, and if that went well the others."""
        await self._reload()
        failures = await self._siblings.reload() if self._siblings is not None else []
        if failures:
            raise Conflict("; ".join(failures), code="reload_incomplete")

    async def _reload(self) -> None:
        failure = await self._siblings.reload_engine() if self._siblings is not None else None
        if failure is not None:
            raise InvalidRequest(failure, code="invalid_configuration")
        await self._live.reload()
        if self._siblings is not None:
            self._siblings.note_reload()
        self._live.app.look_for_providers()

    async def _reload_on_signal(self) -> None:
        if self._siblings is None:
            tell_reloading()
        try:
            await self._reload()
        except GatewayError as error:
            for line in error.message.splitlines():
                say(f"not reloaded: {line}")
        if self._siblings is None:
            tell_ready()

    async def _until_stopped(self, stop: asyncio.Event) -> None:
        """Starts the providers, and waits for a signal, which may come before they are started."""
        start = asyncio.ensure_future(self._start())
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((start, stopped), return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                start.result()
                await stopped
        finally:
            start.cancel()
            stopped.cancel()
            await asyncio.gather(start, stopped, return_exceptions=True)

    async def _start(self) -> None:
        await self._live.app.start()
        self._live.app.look_for_providers()
        if self._siblings is not None:
            await self._siblings.start(lambda: self._live.app.snapshot(), self._reload)
        else:
            tell_ready()

    def _on_signals(self, stop: asyncio.Event) -> None:
        def asked() -> None:
            if stop.is_set():
                os._exit(130)
            stop.set()

        if sys.platform == "win32":
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: asked())
            return

        def reload() -> None:
            task = loop.create_task(self._reload_on_signal())
            self._reloads.add(task)
            task.add_done_callback(self._reloads.discard)

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, asked)
        if self._siblings is None:  # else the parent passes it on
            loop.add_signal_handler(signal.SIGINT, asked)
        loop.add_signal_handler(signal.SIGHUP, reload)


def _say_where(config: Config, bound: Bound, config_path: Path) -> None:
    scheme = "http" if config.server.tls is None else "https"
    if config.server.unix is not None:
        say(f"serving {config_path} on unix:{config.server.unix}")
    else:
        say(f"serving {config_path} on {' and '.join([f'{scheme}://{address_of(each)}/v1' for each in bound.main])}")
    if bound.admin:
        say(f"admin routes on {' and '.join([f'{scheme}://{address_of(each)}' for each in bound.admin])}")


def _settle_memory() -> None:
    """What is loaded now stays, so the collector need not look at it; what requests leave behind is mostly no garbage.

    Measured: 10% of the CPU of a request (Python 3.11, x86-64, 2026-11).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
