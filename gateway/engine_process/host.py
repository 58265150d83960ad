"""Serves a provider to other processes over a socket file. A caller that goes away takes its calls with it."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path

from adapters.canonical.errors import GatewayError, InternalError
from adapters.canonical.request import Request
from gateway.engine_process.messages import pack, read_frame, write_frame
from providers.abilities import Embedder, Measured, Reranker
from providers.base import Provider
from providers.trace_context import PHASES

__all__ = ["GO_ON", "HOLD", "STREAM", "TRACED_STREAM", "Host"]

_QUESTIONS = frozenset(("embed", "rerank", "count_tokens", "tokenize", "detokenize"))
_CHANGES = frozenset(("load_model", "unload_model", "load_adapter", "unload_adapter"))
"""The abilities that can be called, each with one argument. Who calls the latter then knows the new state."""
STREAM, TRACED_STREAM = "stream", "traced stream"
"""Batches of an answer; those of a request that is traced come with the engine's phases."""
HOLD, GO_ON = "hold", "go on"
"""A stream whose reader is slow, and is not any more."""
_LOOK_S = 0.25
"""How often the provider's state is looked at, and told where it changed."""


class Host:
    """`fault` is told of exceptions that are no GatewayError."""

    def __init__(self, provider: Provider, fault: Callable[[BaseException], None]) -> None:
        self._provider = provider
        self._fault = fault
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self, path: Path) -> None:
        """`path` is of the socket file; nothing may be there."""
        await self._provider.start()
        self._server = await asyncio.start_unix_server(self._accept, path)

    @property
    def is_used(self) -> bool:
        """Whether a process is connected."""
        return bool(self._connections)

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._connections.values():  # ends their reading; asyncio reports a cancelled task as a fault
            writer.transport.abort()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._provider.aclose()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        calls: dict[int, asyncio.Task[None]] = {}
        gates: dict[int, asyncio.Event] = {}
        teller = asyncio.create_task(self._tell(writer))
        try:
            while True:
                kind, number, value = await read_frame(reader)
                if kind == "cancel":
                    if number in calls:
                        calls[number].cancel()
                    continue
                if kind in (HOLD, GO_ON):
                    if number in gates:
                        (gates[number].clear if kind == HOLD else gates[number].set)()
                    continue
                gate = gates[number] = asyncio.Event()
                gate.set()
                calls[number] = call = asyncio.create_task(self._serve(kind, number, value, writer, gate))
                call.add_done_callback(partial(_forget, calls, gates, number))
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the caller has left
        finally:
            running = [teller, *calls.values()]
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            writer.close()
            del self._connections[task]

    async def _serve(
        self, kind: str, number: int, value: object, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        """One call; `gate` is shut while the reader of its stream is slow."""
        try:
            if kind in (STREAM, TRACED_STREAM) and isinstance(value, Request):
                if kind == TRACED_STREAM:
                    PHASES.set(lambda *phase: write_frame(writer, ("phase", number, phase)))
                async with aclosing(self._provider.stream(value)) as batches:
                    async for batch in batches:
                        write_frame(writer, ("batch", number, batch))
                        await writer.drain()
                        await gate.wait()
                write_frame(writer, ("end", number, None))
            elif kind in _QUESTIONS | _CHANGES:
                found = await getattr(self._provider, kind)(value)
                if kind in _CHANGES:
                    write_frame(writer, ("state", 0, await self._state()))
                write_frame(writer, ("result", number, found))
        except GatewayError as error:
            write_frame(writer, ("error", number, error))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            self._fault(error)
            write_frame(writer, ("error", number, InternalError("an internal error happened in the engine's process")))

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        told = b""
        while True:
            state = await self._state()
            data = pack(state)
            if data != told:
                told = data
                write_frame(writer, ("state", 0, state))
                await writer.drain()
            await asyncio.sleep(_LOOK_S)

    async def _state(self) -> Mapping[str, object]:
        provider = self._provider
        entries = tuple(await provider.models())
        names = [entry.id for entry in entries if ":" not in entry.id]
        return {
            "models": entries,
            "readiness": {name: provider.readiness(name) for name in names},
            "capabilities": {name: provider.capabilities(name) for name in names},
            "embedding": {name: provider.embedding_fields(name) for name in names}
            if isinstance(provider, Embedder)
            else {},
            "rerank": {name: provider.rerank_fields(name) for name in names} if isinstance(provider, Reranker) else {},
            "measures": tuple(provider.measures()) if isinstance(provider, Measured) else (),
        }


def _forget(
    calls: dict[int, asyncio.Task[None]], gates: dict[int, asyncio.Event], number: int, ended: asyncio.Task[None]
) -> None:
    del calls[number], gates[number]
