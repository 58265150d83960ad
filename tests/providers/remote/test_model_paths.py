"""Providers that name the model in the path: no name leads to another path, whatever is asked of them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.errors import ModelNotFound
from providers.abilities import Embedder, TokenCounter
from providers.base import Provider, ProviderSettings
from providers.registry import build
from tests.mock_upstream import MockUpstream
from tests.providers.remote.anthropic_wire import request
from tests.providers.remote.calls import collect

pytestmark = pytest.mark.timeout(20)
SETTINGS: dict[str, dict[str, Any]] = {
    "gemini": {},
    "bedrock": {"options": {"region": "us-east-1"}},
    "azure": {"options": {"api_version": "2024-10-21"}},
}


@asynccontextmanager
async def connected(kind: str) -> AsyncIterator[tuple[MockUpstream, Provider]]:
    async with MockUpstream() as upstream:
        settings = ProviderSettings(
            name="p", type=kind, base_url=upstream.base_url, api_key="secret-key", **SETTINGS[kind]
        )
        provider = build(settings)
        try:
            yield upstream, provider
        finally:
            await provider.aclose()


async def whole(provider: Provider, model: str) -> None:
    await collect(provider.stream(replace(request(stream=False), model=model)))


async def streamed(provider: Provider, model: str) -> None:
    await collect(provider.stream(replace(request(stream=True), model=model)))


async def embedded(provider: Provider, model: str) -> None:
    assert isinstance(provider, Embedder)
    await provider.embed(EmbeddingRequest(dialect="openai", model=model, inputs=("a",)))


async def counted(provider: Provider, model: str) -> None:
    assert isinstance(provider, TokenCounter)
    await provider.count_tokens(replace(request(stream=False), model=model))


ASKED = [
    *[(kind, call) for kind in SETTINGS for call in (whole, streamed, embedded)],
    ("gemini", counted),
]


@pytest.mark.parametrize(("kind", "call"), ASKED)
async def test_a_name_with_a_dot_segment_reaches_no_upstream(
    kind: str, call: Callable[[Provider, str], Awaitable[None]]
) -> None:
    async with connected(kind) as (upstream, provider):
        with pytest.raises(ModelNotFound):
            await call(provider, "amazon.titan-embed-text-v2/../cohere.embed-dear")
        assert upstream.requests == []
