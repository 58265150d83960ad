"""A scripted HTTP server on a loopback socket: what a provider's tests let an upstream do.

It writes raw bytes, so that an answer can be cut, reset or left hanging at any byte. Answers are given in turn, one for
each request; the last one repeats.

    async with MockUpstream(Answer.json(b'{"id": ...}'), Answer.sse([b"data: ...", b"..."], then="reset")) as upstream:
        ... upstream.base_url ...
        assert upstream.requests[0].headers["authorization"] == "Bearer secret"
"""

import asyncio
import gzip
import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Literal, Self

__all__ = ["Answer", "MockUpstream", "SeenRequest"]

Framing = Literal["chunked", "length", "none"]
Then = Literal["end", "close", "reset", "hang"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One scripted answer.

    `pieces` are separate TCP writes. `then`: `end` finishes the body and keeps the connection, `close` closes without
    the last chunk, `reset` sends a TCP RST, `hang` sends no more until the client leaves. `gate` holds back everything
    after `gate_after` pieces (before the status line where it is None) until the event is set.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes] = ()
    then: Then = "end"
    framing: Framing = "chunked"
    gate: asyncio.Event | None = None
    gate_after: int | None = None
    length: int | None = None
    """The Content-Length to claim, where it is not that of the pieces."""
    silent: bool = False
    """Send nothing at all, not even a status line, before `then`."""

    @staticmethod
    def json(
        body: bytes, status: int = 200, *, headers: Mapping[str, str] | None = None, then: Then = "end"
    ) -> "Answer":
        return Answer(
            status=status,
            headers={"content-type": "application/json", **(headers or {})},
            pieces=(body,),
            framing="length",
            then=then,
        )

    @staticmethod
    def sse(pieces: Iterable[bytes], *, headers: Mapping[str, str] | None = None, then: Then = "end") -> "Answer":
        return Answer(headers={"content-type": "text/event-stream", **(headers or {})}, pieces=tuple(pieces), then=then)

    def gzipped(self) -> "Answer":
        body = gzip.compress(b"".join(self.pieces))
        return replace(self, pieces=(body,), headers={**self.headers, "content-encoding": "gzip"})


@dataclass(frozen=True)
class SeenRequest:
    """A request as it came: header names in lower case, `raw_head` as sent."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    raw_head: bytes


class MockUpstream:
    """The server. `requests` are those seen so far; `open_calls` counts answers that are not over yet."""

    def __init__(self, *answers: Answer) -> None:
        self.answers: list[Answer] = list(answers)
        self.requests: list[SeenRequest] = []
        self.connections = 0
        self.open_calls = 0
        self._next = 0
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def script(self, *answers: Answer) -> None:
        """From now on, these are the answers."""
        self.answers = list(answers)
        self._next = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def seen(self, count: int, within_s: float = 5.0) -> None:
        """Returns when `count` requests have come."""
        await self._wait(lambda: len(self.requests) >= count, within_s)

    async def idle(self, within_s: float = 1.0) -> None:
        """Returns when no answer is open any more: all ended, or their clients left."""
        await self._wait(lambda: self.open_calls == 0, within_s)

    async def _wait(self, condition: Callable[[], bool], within_s: float) -> None:
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(condition)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            early: bytes | None = b""
            while early is not None:
                early = await self._serve_one(reader, writer, early)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _serve_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, early: bytes
    ) -> bytes | None:
        """Answers one request. Gives what already came of the next one, None when the connection is over."""
        seen = await _read_request(reader, early)
        answer = self.answers[min(self._next, len(self.answers) - 1)]
        self._next += 1
        self.requests.append(seen)
        self.open_calls += 1
        await self._notify()
        left = asyncio.ensure_future(reader.read(1))  # nothing is due now: this ends when the client leaves
        answering = asyncio.ensure_future(_write_answer(writer, answer))
        try:
            await asyncio.wait((left, answering), return_when=asyncio.FIRST_COMPLETED)
            if left.done() and not answering.done():
                return None
            answering.result()
        finally:
            left.cancel()
            answering.cancel()
            await asyncio.gather(left, answering, return_exceptions=True)
            self.open_calls -= 1
            await self._notify()
        if answer.then != "end" or answer.framing == "none":
            return None
        return b"" if left.cancelled() else left.result() or None


async def _read_request(reader: asyncio.StreamReader, early: bytes) -> SeenRequest:
    head = early + await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    pairs = [line.split(":", 1) for line in lines if line]
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    if headers.get("transfer-encoding") == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return SeenRequest(method, path, headers, body, head)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    pieces: list[bytes] = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(pieces)


async def _write_answer(writer: asyncio.StreamWriter, answer: Answer) -> None:
    if answer.gate is not None and answer.gate_after is None:
        await answer.gate.wait()
    if not answer.silent:
        writer.write(_head(answer))
        await _flush(writer)
        for number, piece in enumerate(answer.pieces):
            if answer.gate is not None and answer.gate_after == number:
                await answer.gate.wait()
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if answer.framing == "chunked" else piece)
            await _flush(writer)
    if answer.then == "end" and answer.framing == "chunked":
        writer.write(b"0\r\n\r\n")
    elif answer.then == "hang":
        await asyncio.Event().wait()
    elif answer.then == "reset":
        linger = struct.pack("ii", 1, 0)  # close at once, with an RST
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    await writer.drain()


async def _flush(writer: asyncio.StreamWriter) -> None:
    """Lets the client (on the same loop) see this write before the next one."""
    await writer.drain()
    for _ in range(4):
        await asyncio.sleep(0)


def _head(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} Scripted"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    if answer.framing == "chunked":
        lines.append("transfer-encoding: chunked")
    elif answer.framing == "length":
        length = answer.length if answer.length is not None else sum(map(len, answer.pieces))
        lines.append(f"content-length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
