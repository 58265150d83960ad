"""The other processes that serve the same port: each answers the others on a socket file of its own.

One question a connection: a word and a line break. `metrics` is answered with a snapshot, `reload` with what went
wrong, or nothing.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from adapters.canonical.errors import GatewayError
from gateway.telemetry.series import Snapshot, merged

__all__ = ["Siblings"]

_ANSWER_S = 5.0
_RELOAD_S = 120.0
_MAX_ANSWER = 64 * 2**20
_decoder = msgspec.msgpack.Decoder(Snapshot)


class Siblings:
    """`folder` holds the socket files, `number` is this process's own among `count`; the engine's, where there is one,
    is `count` itself. `parent` can be read from once the process that started them all is gone."""

    def __init__(self, folder: Path, number: int, count: int, parent: int, *, has_engine: bool = False) -> None:
        self.has_engine = has_engine
        self._reloaded = folder / "reloaded"
        self._parent = parent
        self._folder = folder
        self._number = number
        self._count = count
        self._server: asyncio.Server | None = None
        self._snapshot: Callable[[], Snapshot | None] = lambda: None
        self._before = self._kept(number)
        self._telling = asyncio.Lock()
        self._reload: Callable[[], Awaitable[None]] | None = None

    def engine(self, settings: str) -> Path:
        """The socket file of the local models that are built from these settings."""
        return self._folder / f"engine-{settings}.sock"

    def follow_parent(self) -> None:
        """From now on, the end of the parent is the end of this process. For the running loop."""
        asyncio.get_running_loop().add_reader(self._parent, _end)

    async def start(self, snapshot: Callable[[], Snapshot | None], reload: Callable[[], Awaitable[None]]) -> None:
        """From now on the others are answered, and the end of the parent is the end of this process."""
        self.follow_parent()
        self._snapshot, self._reload = snapshot, reload
        path = self._path(self._number)
        path.unlink(missing_ok=True)  # of the process that had this number before
        self._server = await asyncio.start_unix_server(self._answer, path)

    async def aclose(self) -> None:
        asyncio.get_running_loop().remove_reader(self._parent)
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def snapshots(self, own: Snapshot) -> Sequence[Snapshot]:
        """What each has counted, with those that had its number before; of one that does not answer, what it told last.
        `own` is this one's."""
        others = await asyncio.gather(*[self._ask(number, b"metrics", _ANSWER_S) for number in self._others()])
        mine = await self._told(own)
        told = [mine, *[answer for answer in others if answer]]
        silent = [number for number, answer in zip(self._others(), others, strict=True) if not answer]
        return [*[_decoder.decode(answer) for answer in told], *map(self._kept, silent)]

    async def reload(self) -> Sequence[str]:
        """Lets the others take run.yaml as it is now; gives what went wrong."""
        numbers = list(self._others())
        answers = await asyncio.gather(*[self._ask(number, b"reload", _RELOAD_S) for number in numbers])
        return [
            f"worker {number}: {'it does not answer' if answer is None else answer.decode()}"
            for number, answer in zip(numbers, answers, strict=True)
            if answer is None or answer
        ]

    @property
    def have_reloaded(self) -> bool:
        """Whether run.yaml was taken anew since the start, so that who starts now must read it as well."""
        return self._reloaded.exists()

    def note_reload(self) -> None:
        """run.yaml was taken anew."""
        self._reloaded.touch()

    async def reload_engine(self) -> str | None:
        """Lets the process of the local models take run.yaml as it is now; gives what went wrong."""
        if not self.has_engine:
            return None
        answer = await self._ask(self._count, b"reload", _RELOAD_S)
        return "the local models' process does not answer" if answer is None else answer.decode() or None

    async def _told(self, own: Snapshot) -> bytes:
        """What this process tells. It is kept before, so that a sum that was told never gets less."""
        async with self._telling:
            told = msgspec.msgpack.encode(merged([own, self._before]))
            await asyncio.to_thread(self._keep, told)
            return told

    def _keep(self, told: bytes) -> None:
        place = self._counted(self._number)
        written = place.with_suffix(".new")
        written.write_bytes(told)
        written.replace(place)

    def _kept(self, number: int) -> Snapshot:
        """What the process of this number told last, without what was of its moment."""
        try:
            told = _decoder.decode(self._counted(number).read_bytes())
        except FileNotFoundError:
            return Snapshot()
        return Snapshot(told.requests, told.attempts)

    def _counted(self, number: int) -> Path:
        return self._folder / f"{number}.counted"

    def _others(self) -> Sequence[int]:
        return [number for number in range(self._count) if number != self._number]

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.sock"

    async def _ask(self, number: int, question: bytes, within_s: float) -> bytes | None:
        try:
            async with asyncio.timeout(within_s):
                reader, writer = await asyncio.open_unix_connection(self._path(number), limit=_MAX_ANSWER)
                try:
                    writer.write(question + b"\n")
                    return await reader.read(-1)
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            question = (await reader.readline()).strip()
            if question == b"metrics":
                snapshot = self._snapshot()
                if snapshot is not None:
                    writer.write(await self._told(snapshot))
            elif question == b"reload" and self._reload is not None:
                try:
                    await self._reload()
                except GatewayError as error:
                    writer.write(error.message.encode())
            await writer.drain()
        except ConnectionError:
            return  # whoever asked has left
        finally:
            writer.close()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
