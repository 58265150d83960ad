"""A gateway inside this process: the same application, on an event loop in a thread of its own, without a port.

A connection is a pair of connected sockets that nobody else can reach; what goes through it is the same HTTP as on a
port, so there is one path for both.
"""

import asyncio
import atexit
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import BinaryIO, TypeVar

from gateway.config import Config, load_config
from gateway.server.app import Surroundings, build_app
from gateway.server.lifetime import App
from providers.registry import provider_types

__all__ = ["EmbeddedGateway"]

T = TypeVar("T")
_CLOSE_S = 30.0
_LOOK_S = 0.05


class _Flushed:
    """Lines that can be read as soon as they are written. Satisfies `gateway.server.log.Output`."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, data: bytes, /) -> int:
        taken = self._out.write(data)
        self._out.flush()
        return taken


class EmbeddedGateway:
    """Runs the application that `build` makes, from construction to `close`. Methods may be called from any thread.

    `build` is called on the gateway's own loop; what it raises, the constructor raises. Provider starts go on behind.
    A process that is forked from this one has no part in it: its threads stay here.
    """

    def __init__(self, build: Callable[[], App]) -> None:
        self._process = os.getpid()
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._thread.start()
        self._closed = False
        self._lock = threading.Lock()
        try:
            self._app = self._wait(_build(build))
        except BaseException:
            self._stop_loop()
            raise
        self._starting = asyncio.run_coroutine_threadsafe(self._app.start(), self._loop)
        atexit.register(self.close)

    @classmethod
    def from_config(cls, config: Config, log: BinaryIO | None = None) -> "EmbeddedGateway":
        """With the log lines written to `log`; None: to nowhere."""
        out = None if log is None else _Flushed(log)
        return cls(lambda: build_app(config, around=Surroundings(log=out)))

    def connect(self) -> socket.socket:
        """The client's end of a new connection; it blocks. Raises ConnectionError after `close`, and in a fork."""
        if os.getpid() != self._process:
            raise ConnectionError("the embedded gateway is in the process that this one was forked from")
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        with self._lock:
            if self._closed:
                ours.close()
                theirs.close()
                raise ConnectionError("the embedded gateway is closed")
            accepting = self._loop.connect_accepted_socket(self._app.connections, theirs)
            asyncio.run_coroutine_threadsafe(accepting, self._loop)
        return ours

    def wait_until_loaded(self, model: str) -> None:
        """Blocks while the model, by any name that a request may use, is still loading. Raises what a failed start
        does."""
        self._starting.result()
        asyncio.run_coroutine_threadsafe(_loaded(self._app, model), self._loop).result()

    def close(self) -> None:
        """Ends what runs, closes the providers and the thread. Blocks until that is done. Does nothing in a fork."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self.close)
        self._starting.cancel()
        self._wait(_close(self._app))
        self._stop_loop()

    def _wait(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CLOSE_S)

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        self._loop.close()


def read_config(path: str | os.PathLike[str]) -> Config:
    """run.yaml for a gateway in this process. Raises ConfigError."""
    return load_config(Path(path), os.environ, provider_types=provider_types())


async def _build(build: Callable[[], App]) -> App:
    return build()


async def _loaded(app: App, model: str) -> None:
    while await app.catalogue.is_loading(model):  # noqa: ASYNC110  # providers tell of no moment when they are ready
        await asyncio.sleep(_LOOK_S)


async def _close(app: App) -> None:
    await app.drain(0)
    await app.aclose()


def _new_loop() -> asyncio.AbstractEventLoop:
    if os.name == "nt":
        return asyncio.new_event_loop()
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
