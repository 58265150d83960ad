"""An upstream of OpenAI's chat API that goes wrong now and then, in every way that one can. It keeps nothing of what it
was asked."""

import asyncio
import json
import random
import socket
import struct
from collections.abc import Callable

__all__ = ["FAULTS", "FlakyUpstream"]

_CHUNK = b'data: {"id":"u","created":1,"model":"m","choices":[{"index":0,"delta":%b,"finish_reason":%b}]}\n\n'
_CALL = b'[{"index":0,"id":"call_1","type":"function","function":{"name":"find","arguments":%b}}]'
_USAGE = b'{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}'
_VECTORS = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,1.0]}],"model":"m"}'
_PAGE = b"HTTP/1.1 200 X\r\ncontent-type: text/html\r\ncontent-length: 25\r\n\r\n<html>please log in</html>"
_ERROR = b'{"error":{"message":"no","type":"server_error"}}'
FAULTS: dict[str, Callable[[bytes], bytes]] = {
    # What is sent in place of a good answer; then the connection is reset.
    "nothing": lambda good: b"",
    "half a head": lambda good: good[:20],
    "half an answer": lambda good: good[: len(good) // 2],
    "all but the end": lambda good: good[:-20],
    "a page": lambda good: _PAGE,
    "garbage": lambda good: b"\xff\xfe\x00garbage\r\n\r\n",
    "an error": lambda good: _whole(_ERROR, 500),
    "an error that is called good": lambda good: _whole(_ERROR),
    "too many": lambda good: _whole(_ERROR, 429, "retry-after-ms: 20\r\n"),
    "silence": lambda good: good[:40],
}
"""`silence` is not reset: nothing more comes until the caller leaves."""


class FlakyUpstream:
    """`share` of the answers go wrong. `asked` counts requests, `wrong` the faults, `open` connections."""

    def __init__(self, random: random.Random, *, share: float) -> None:
        self._random = random
        self._share = share
        self._server: asyncio.Server | None = None
        self.asked = 0
        self.wrong = 0
        self.open = 0

    async def start(self) -> str:
        """The base URL."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def close(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET "):  # whether it lives
                    await self._send(writer, _MODELS)
                    continue
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                body = json.loads(await reader.readexactly(int(length.split(b":")[1])))
                self.asked += 1
                good = _VECTORS_ANSWER if head.startswith(b"POST /v1/embeddings") else _good(body)
                if self._random.random() >= self._share:
                    await self._send(writer, good)
                    continue
                self.wrong += 1
                name = self._random.choice(list(FAULTS))
                await self._send(writer, FAULTS[name](good))
                if name == "silence":
                    await reader.read(1)
                if not writer.is_closing():  # the gateway may have left already
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
                return
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the gateway left
        finally:
            self.open -= 1
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        """In pieces, some milliseconds apart."""
        cuts = sorted(self._random.randrange(len(answer) + 1) for _ in range(3)) if answer else []
        for begin, end in zip([0, *cuts], [*cuts, len(answer)], strict=True):
            writer.write(answer[begin:end])
            await writer.drain()
            await asyncio.sleep(self._random.random() * 0.01)


def _whole(body: bytes, status: int = 200, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{more}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _good(body: dict[str, object]) -> bytes:
    """The answer to a chat: text, or a call where there are tools."""
    call = bool(body.get("tools"))
    reason = b'"tool_calls"' if call else b'"stop"'
    if not body.get("stream"):
        said = b'"content":"a few words"'
        if call:
            said = b'"content":null,"tool_calls":' + _CALL.replace(b'"index":0,', b"") % b'"{\\"a\\":1}"'
        choice = b'{"index":0,"message":{"role":"assistant",%b},"finish_reason":%b}' % (said, reason)
        return _whole(b'{"id":"u","created":1,"model":"m","choices":[%b],"usage":%b}' % (choice, _USAGE))
    deltas = [b'{"role":"assistant","content":"a"}', b'{"content":" few"}', b'{"content":" words"}']
    if call:
        deltas = [b'{"role":"assistant","tool_calls":%b}' % (_CALL % b'"{\\"a\\""')]
        deltas.append(b'{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}')
    frames = [_CHUNK % (delta, b"null") for delta in deltas] + [_CHUNK % (b"{}", reason)]
    frames.append(b'data: {"id":"u","created":1,"model":"m","choices":[],"usage":%b}\n\ndata: [DONE]\n\n' % _USAGE)
    sent = b"".join(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames)
    head = b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + sent + b"0\r\n\r\n"


_VECTORS_ANSWER = _whole(_VECTORS)
_MODELS = _whole(b'{"object":"list","data":[]}')
