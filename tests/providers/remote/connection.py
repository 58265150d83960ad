"""A provider in front of a scripted server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from providers.base import Provider, ProviderSettings
from providers.registry import build
from tests.mock_upstream import Answer, MockUpstream

__all__ = ["connected_to"]

P = TypeVar("P", bound=Provider)


@asynccontextmanager
async def connected_to(
    kind: type[P], *answers: Answer, below: str = "/v1", **settings: Any
) -> AsyncIterator[tuple[MockUpstream, P]]:
    """`settings` are more of the provider's, its type among them; `below` is the path of its base URL."""
    async with MockUpstream(*answers) as upstream:
        base_url = upstream.base_url.removesuffix("/v1") + below
        provider = build(ProviderSettings(**{"name": "up", "base_url": base_url, "api_key": "secret-key", **settings}))
        assert isinstance(provider, kind)
        try:
            yield upstream, provider
        finally:
            await provider.aclose()
