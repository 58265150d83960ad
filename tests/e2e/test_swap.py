"""One line of run.yaml moves the same client from the local model to a remote server."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import openai
import orjson

from gateway.config import load_config
from gateway.server.app import Surroundings, build_app
from providers.registry import provider_types
from tests.mock_upstream import Answer, MockUpstream

RUN_YAML = """\
version: 1
providers:
  local: {{type: local, model: smollm2-135m-instruct}}
  remote: {{type: openai-compatible, base_url: "{remote}"}}
models:
  assistant: {target}
"""
REMOTE_ANSWER = orjson.dumps(
    {
        "id": "r1",
        "object": "chat.completion",
        "created": 1,
        "model": "big",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "From afar: Berlin."}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9},
    }
)


@asynccontextmanager
async def serving(run_yaml: Path) -> AsyncIterator[str]:
    """The gateway's base URL."""
    config = load_config(run_yaml, {}, provider_types=provider_types())
    app = build_app(config, around=Surroundings(log=io.BytesIO()))
    await app.start()
    server = await asyncio.get_running_loop().create_server(app.connections, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        await app.drain(0)
        await app.aclose()


async def ask(url: str) -> str:
    """The client's program; it never changes."""
    async with openai.AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as client:
        answer = await client.chat.completions.create(
            model="assistant", messages=[{"role": "user", "content": "What is the capital of Germany?"}]
        )
    assert answer.model == "assistant"
    return answer.choices[0].message.content or ""


async def test_changing_one_line_moves_the_client_to_another_provider(smollm2_path: Path, tmp_path: Path) -> None:
    run_yaml = tmp_path / "run.yaml"
    async with MockUpstream(Answer.json(REMOTE_ANSWER)) as remote:
        text = RUN_YAML.format(remote=remote.base_url, target="local/smollm2-135m-instruct")
        run_yaml.write_text(text)
        async with serving(run_yaml) as url:
            assert await ask(url) == "The capital of Germany is Berlin."
        assert remote.requests == []
        changed = text.replace("assistant: local/smollm2-135m-instruct", "assistant: remote/big")
        lines = zip(text.splitlines(), changed.splitlines(), strict=True)
        assert sum(before != after for before, after in lines) == 1
        run_yaml.write_text(changed)
        async with serving(run_yaml) as url:
            assert await ask(url) == "From afar: Berlin."
    assert orjson.loads(remote.requests[0].body)["model"] == "big"
