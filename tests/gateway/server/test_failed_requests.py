"""What a request leaves behind, a failed one above all: nothing that waits for the garbage collector with a prompt
inside."""

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import pytest

from adapters.canonical.errors import GatewayError
from gateway.server.exchange import Exchange
from tests.gateway.server.one_upstream import one_upstream
from tests.gateway.server.running import chat
from tests.mock_upstream import Answer

CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
PIECE = {**CHUNK, "choices": [{"index": 0, "delta": {"content": "x"}}]}
REFUSED = {"error": {"message": "no", "code": "invalid_api_key"}}
FINISH = {**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
ANSWERS = {
    "good": Answer.sse([f"data: {json.dumps(piece)}\n\n".encode() for piece in (PIECE, FINISH)]),
    "refused": Answer.json(json.dumps(REFUSED).encode(), 401),
    "wrong": Answer.json(b'{"error":{"message":"no"}}', 400),
    "failed": Answer.json(b'{"error":{"message":"no"}}', 500),
    "page": Answer(headers={"content-type": "text/html"}, pieces=(b"<html>",)),
    "garbage": Answer.json(b'{"id":'),
    "cut": Answer.sse([f"data: {json.dumps(PIECE)}\n\n".encode()], then="reset"),
}


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive() -> int:
    """Requests and errors that are in memory, by their types alone: some foreign objects warn when looked at."""
    return sum(issubclass(type(each), (GatewayError, Exchange)) for each in gc.get_objects())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))
async def test_requests_and_their_errors_are_gone_without_a_garbage_collector(answer: Answer, stream: bool) -> None:
    async with one_upstream("openai-compatible", answer) as gateway, aiohttp.ClientSession() as session:

        async def ask() -> None:
            body = chat("up/m", stream=stream)
            async with session.post(f"{gateway.url}/v1/chat/completions", json=body) as found:
                await found.read()

        await ask()
        with without_collector():
            before = alive()
            for _ in range(5):
                await ask()
            assert alive() <= before + 2  # the last one may still be in the hands of its connection
