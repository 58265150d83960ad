"""OpenAI's words on the wire, and a provider connected to a server that says them."""

import json
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest

from adapters.canonical.errors import (
    GatewayError,
)
from adapters.canonical.events import Event, TextDelta
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Request
from providers.base import ProviderSettings
from providers.registry import build
from providers.remote.openai_compatible import OpenAICompatible
from providers.testing.contract import TEXT
from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote.connection import connected_to

HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
DONE = b"data: [DONE]\n\n"


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": index, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({**HEAD, "choices": choices, **more}, ensure_ascii=False).encode() + b"\n\n"


def whole(message: dict[str, Any], finish: str = "stop", **more: Any) -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = {**HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE, **more}
    return Answer.json(json.dumps(body).encode())


FIRST = chunk({"role": "assistant", "content": TEXT[:3]})
LAST = chunk({"content": TEXT[3:]})
STREAM = Answer.sse([FIRST, LAST, chunk({}, "stop"), chunk(usage=USAGE), DONE])


def request(*, stream: bool = True, **changes: Any) -> Request:
    values: dict[str, Any] = {"messages": (Message(role=USER, parts=(Text(text="hi"),)),), **changes}
    return Request(model="m", dialect="openai.chat", stream=stream, **values)


def provider_for(base_url: str, **changes: Any) -> OpenAICompatible:
    values = {"name": "up", "type": "openai-compatible", "base_url": base_url, "api_key": "secret-key", **changes}
    provider = build(ProviderSettings(**values))
    assert isinstance(provider, OpenAICompatible)
    return provider


connected = partial(connected_to, OpenAICompatible, type="openai-compatible")


async def collect(provider: OpenAICompatible, asked: Request) -> list[Event]:
    async with aclosing(provider.stream(asked)) as batches:
        return [event async for batch in batches for event in batch]


async def failure(provider: OpenAICompatible, asked: Request) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await collect(provider, asked)
    return caught.value


def texts(events: list[Event]) -> dict[int, str]:
    found: dict[int, str] = {}
    for event in events:
        if isinstance(event, TextDelta):
            found[event.choice] = found.get(event.choice, "") + event.text
    return found


def body_of(upstream: MockUpstream, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(upstream.requests[number].body)
    return found


def call_delta(index: int, **function: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "id": "", "type": "function", "function": function}]}
