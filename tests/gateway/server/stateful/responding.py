"""Clients of the Responses API, and what they ask, for tests of the whole gateway."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai

from adapters.canonical.events import ChoiceFinished, Started
from adapters.canonical.stop_reason import StopReason
from providers.base import Batch
from tests.gateway.server.running import Running, text

ONE_TRY = "reliability: {retry: {attempts: 1}}\n"
KEYS = "auth: {keys: [{id: ann, secret: s-ann}, {id: bob, secret: s-bob}]}\n"


def answers(*values: str) -> list[Batch]:
    return [[Started()], *[text(value) for value in values], [ChoiceFinished(0, StopReason.STOP)]]


@asynccontextmanager
async def client(gateway: Running, key: str = "any") -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key=key, max_retries=0) as found:
        yield found


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "fake/m", "input": "hi", **fields}
