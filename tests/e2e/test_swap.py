"""One line of run.yaml moves the same client from the local model to a remote server."""

from pathlib import Path

import openai
import orjson

from tests.mock_upstream import Answer, MockUpstream
from tests.serving import serving

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


async def ask(url: str) -> str:
    """The client's program; it never changes."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        answer = await client.chat.completions.create(
            model="assistant", messages=[{"role": "user", "content": "What is the capital of Germany?"}]
        )
    assert answer.model == "assistant"
    return answer.choices[0].message.content or ""


async def test_changing_one_line_moves_the_client_to_another_provider(smollm2_path: Path) -> None:
    async with MockUpstream(Answer.json(REMOTE_ANSWER)) as remote:
        text = RUN_YAML.format(remote=remote.base_url, target="local/smollm2-135m-instruct")
        async with serving(text) as url:
            assert await ask(url) == "The capital of Germany is Berlin."
        assert remote.requests == []
        changed = text.replace("assistant: local/smollm2-135m-instruct", "assistant: remote/big")
        lines = zip(text.splitlines(), changed.splitlines(), strict=True)
        assert sum(before != after for before, after in lines) == 1
        async with serving(changed) as url:
            assert await ask(url) == "From afar: Berlin."
    assert orjson.loads(remote.requests[0].body)["model"] == "big"
