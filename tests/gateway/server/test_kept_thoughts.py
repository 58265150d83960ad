"""A chat client that plays back calls without what the model thought, in front of an upstream that wants it back."""

import json
from typing import Any

import pytest

from providers.base import ProviderSettings
from providers.registry import build
from tests.gateway.server.running import running
from tests.mock_upstream import Answer, MockUpstream

pytestmark = pytest.mark.timeout(20)
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "SIG+/=="}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def message(*blocks: Any, stop: str) -> Answer:
    body = {"id": "m", "type": "message", "role": "assistant", "content": blocks, "stop_reason": stop, "usage": {}}
    return Answer.json(json.dumps(body).encode())


@pytest.mark.parametrize("keeps", [False, True])
async def test_the_upstream_gets_its_thoughts_back_whether_the_client_keeps_them_or_not(keeps: bool) -> None:
    called = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    answers = (message(THOUGHT, called, stop="tool_use"), message({"type": "text", "text": "ok"}, stop="end_turn"))
    async with MockUpstream(*answers) as upstream:
        provider = build(ProviderSettings(name="up", type="anthropic", base_url=upstream.base_url, api_key="k"))
        async with running(provider) as gateway:
            said: list[Any] = [{"role": "user", "content": "go"}]
            asked = {"model": "up/claude-sonnet-4-6", "messages": said, "tools": TOOLS, "reasoning_effort": "low"}
            async with gateway.post(asked) as answer:
                made = (await answer.json())["choices"][0]["message"]
            kept = made if keeps else {"role": "assistant", "content": None, "tool_calls": made["tool_calls"]}
            said += [kept, {"role": "tool", "tool_call_id": "toolu_1", "content": "1"}]
            async with gateway.post(asked) as answer:
                assert answer.status == 200
        sent = json.loads(upstream.requests[1].body)
    assert sent["messages"][1]["content"] == [THOUGHT, called]
    assert sent["thinking"]["type"] == "adaptive"
