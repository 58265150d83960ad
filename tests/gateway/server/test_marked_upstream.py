"""A bare server whose row in run.yaml names its model's forms, seen by a client of the openai SDK."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai

from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote.openai_wire import DONE, chunk, whole
from tests.serving import serving

TEXT = '<think>\nplan\n</think>\n\nLook.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
ASKED: Any = {
    "model": "bare/m",
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
}


@asynccontextmanager
async def client_of(*answers: Answer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with MockUpstream(*answers) as upstream:
        row = f'{{type: vllm, base_url: "{upstream.base_url}", reasoning_format: think, tool_format: hermes}}'
        async with (
            serving(f"version: 1\nproviders:\n  bare: {row}\n") as url,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=20) as client,
        ):
            yield client


async def test_reasoning_and_calls_are_such_in_both_modes() -> None:
    pieces = [chunk({"content": TEXT[at : at + 5]}) for at in range(0, len(TEXT), 5)]
    async with client_of(whole({"content": TEXT}), Answer.sse([*pieces, chunk({}, "stop"), DONE])) as client:
        message = (await client.chat.completions.create(**ASKED)).choices[0]
        assert (message.finish_reason, message.message.content) == ("tool_calls", "Look.")
        assert (message.message.model_extra or {})["reasoning_content"] == "plan"
        (call,) = message.message.tool_calls or [None]
        assert call is not None
        assert call.type == "function"
        assert (call.function.name, call.function.arguments) == ("f", '{"a": 1}')
        thought = said = arguments = ""
        ends = []
        async for piece in await client.chat.completions.create(**ASKED, stream=True):
            for choice in piece.choices:
                thought += (choice.delta.model_extra or {}).get("reasoning_content") or ""
                said += choice.delta.content or ""
                for part in choice.delta.tool_calls or ():
                    arguments += (part.function and part.function.arguments) or ""
                ends += [choice.finish_reason] if choice.finish_reason else []
        assert (thought, said, arguments, ends) == ("plan", "Look.", '{"a": 1}', ["tool_calls"])
