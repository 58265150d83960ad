"""A gateway on a real socket in front of two scripted servers, with OpenAI's SDK as its client."""

import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import openai

from tests.mock_upstream import Answer, MockUpstream
from tests.serving import serving

__all__ = ["KEY", "TwoUpstreams", "two_upstreams"]

KEY = "s3cret-s3cret"
"""What the SDK shows, for a gateway that asks for keys."""


@dataclass
class TwoUpstreams:
    """`url` is the gateway's, without a path."""

    url: str
    session: aiohttp.ClientSession
    sdk: openai.AsyncOpenAI
    a: MockUpstream
    b: MockUpstream
    log: io.BytesIO

    async def post(self, path: str, body: object) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON and headers (in lower case) of the answer."""
        async with self.session.post(self.url + path, json=body) as answer:
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, json.loads(await answer.read()), headers

    def sent(self) -> dict[str, Any]:
        """The JSON that came to `a` last."""
        found: dict[str, Any] = json.loads(self.a.requests[-1].body)
        return found


@asynccontextmanager
async def two_upstreams(
    answers: Sequence[Answer],
    other: Answer,
    *,
    types: tuple[str, str],
    alias: str,
    reliability: str = "{retry: {attempts: 1}}",
    extra: str = "",
) -> AsyncIterator[TwoUpstreams]:
    """The providers `a` (which gives the answers) and `b` (the other one), and an alias for `a/m`, then `b/n`."""
    async with MockUpstream(*answers) as a, MockUpstream(other) as b:
        text = (
            "version: 1\n"
            f"providers:\n  a: {{type: {types[0]}, base_url: '{a.base_url}', api_key: up-key}}\n"
            f"  b: {{type: {types[1]}, base_url: '{b.base_url}'}}\n"
            f"models:\n  {alias}: {{targets: [{{use: a/m}}, {{use: b/n}}]}}\n"
            f"reliability: {reliability}\n" + extra
        )
        log = io.BytesIO()
        async with (
            serving(text, log=log) as url,
            aiohttp.ClientSession() as session,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as sdk,
        ):
            yield TwoUpstreams(url, session, sdk, a, b, log)
