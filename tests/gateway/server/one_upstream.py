"""A gateway on a real socket in front of one scripted server of any kind of provider."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.mock_upstream import Answer, MockUpstream
from tests.serving import serving

__all__ = ["OneUpstream", "one_upstream"]

_OPTIONS = {"bedrock": ", region: us-east-1"}


@dataclass
class OneUpstream:
    """`url` is the gateway's, without a path."""

    url: str
    upstream: MockUpstream

    def sent(self) -> Any:
        """The JSON that the server got last."""
        return json.loads(self.upstream.requests[-1].body)


@asynccontextmanager
async def one_upstream(kind: str, *answers: Answer) -> AsyncIterator[OneUpstream]:
    """The server is the provider `up`, which is tried once."""
    async with MockUpstream(*answers) as upstream:
        address = upstream.base_url.removesuffix("/v1") if kind == "ollama" else upstream.base_url
        row = f"{{type: {kind}, base_url: '{address}', api_key: up-key{_OPTIONS.get(kind, '')}}}"
        kept = "storage: {url: memory}\nreliability: {retry: {attempts: 1}}\n"
        async with serving(f"version: 1\nproviders:\n  up: {row}\n{kept}") as url:
            yield OneUpstream(url, upstream)
