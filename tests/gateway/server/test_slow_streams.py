"""Many slow streams at once: none fails, each costs little memory, and who comes new is answered beside them.

The long form, with thousands of them and a clock, is bench/gateway/slow_streams.py.
"""

import asyncio
import gc
import tracemalloc
from pathlib import Path

import aiohttp
import pytest

from gateway.config import parse_config
from gateway.server.app import Surroundings, build_app
from tests.gateway.server.faulty import CHUNKS
from tests.gateway.server.running import chat, until
from tests.mock_upstream import Answer, MockUpstream
from tests.serving import listening

STREAMS = 100
OWN_BYTES = 19_000
"""What our code may hold for a stream that waits, the connections to its client and to its upstream with it."""
ROOT = Path(__file__).parents[3]
OURS = [tracemalloc.Filter(True, f"{ROOT}/{package}/*") for package in ("adapters", "providers", "gateway")]


def own_bytes() -> int:
    """What our packages hold now."""
    gc.collect()
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(OURS).traces)


@pytest.mark.timeout(60)
async def test_hundreds_of_streams_wait_together_and_a_newcomer_is_answered_beside_them() -> None:
    release = asyncio.Event()
    begun: list[str] = []
    quick = Answer.sse([chunk.replace(b'"m",', b'"m","system_fingerprint":"fp",') for chunk in CHUNKS])
    slow = Answer(headers=quick.headers, pieces=quick.pieces, gate=release, gate_after=2)
    async with MockUpstream(slow) as a, MockUpstream(quick) as b:
        text = (
            "version: 1\nstorage: {url: memory}\nproviders:\n"
            f"  a: {{type: openai-compatible, base_url: '{a.base_url}'}}\n"
            f"  b: {{type: openai-compatible, base_url: '{b.base_url}'}}\n"
        )
        app = build_app(parse_config(text, {}, provider_types=["openai-compatible"]), around=Surroundings(log=None))
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            listening(app, backlog=STREAMS) as url,
            aiohttp.ClientSession(connector=connector) as session,
        ):

            async def ask(model: str) -> bytes:
                async with session.post(f"{url}/v1/chat/completions", json=chat(model, stream=True)) as answer:
                    assert answer.status == 200
                    begun.append(model)
                    return await answer.read()

            assert b"[DONE]" in await ask("b/m")  # what is made once is there
            tracemalloc.start()
            try:
                before = own_bytes()
                asked = [asyncio.ensure_future(ask("a/m")) for _ in range(STREAMS)]
                await until(lambda: begun.count("a/m") == STREAMS, within_s=30)
                assert app.service.active == STREAMS
                held = own_bytes() - before
            finally:
                tracemalloc.stop()
            newcomer = await ask("b/m")
            assert newcomer.count(b"finish_reason") == 4
            assert not any(one.done() for one in asked)
            release.set()
            answers = await asyncio.gather(*asked)
            assert all(answer.endswith(b"data: [DONE]\n\n") and b"error" not in answer for answer in answers)
            assert a.open_calls == app.service.active == 0
    assert held / STREAMS < OWN_BYTES, held / STREAMS
