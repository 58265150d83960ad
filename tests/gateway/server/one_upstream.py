"""A gateway on a real socket in front of one scripted server of any kind of provider."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gateway.config import parse_config
from gateway.server.app import Surroundings, build_app
from tests.mock_upstream import Answer, MockUpstream

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
        config = parse_config(f"version: 1\nproviders:\n  up: {row}\n{kept}", {}, provider_types=[kind])
        app = build_app(config, around=Surroundings(log=io.BytesIO()))
        await app.start()
        server = await asyncio.get_running_loop().create_server(app.connections, "127.0.0.1", 0)
        try:
            yield OneUpstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", upstream)
        finally:
            server.close()
            await app.drain(0)
            await app.aclose()
