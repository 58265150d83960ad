"""Calls of the tiny dialect over a real client, for the tests of HTTP."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from adapters.canonical.errors import (
    GatewayError,
)
from adapters.canonical.events import Event, TextDelta
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Request
from providers.base import Batch, ProviderSettings
from providers.client_key import BEARER
from providers.remote.exchange import exchange
from providers.remote.http import HttpClient
from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote.tiny_dialect import END, TinyUpstream, chunk

BODY = b'{"text": "hello"}'
STREAM = Answer.sse([chunk("hel"), chunk("lo"), END])


def request(*, stream: bool = True, request_id: str | None = None) -> Request:
    messages = (Message(role=USER, parts=(Text(text="hi"),)),)
    return Request(model="m", dialect="tiny", stream=stream, messages=messages, request_id=request_id)


def settings(base_url: str = "http://127.0.0.1:9/v1", **changes: object) -> ProviderSettings:
    values: dict[str, object] = {"name": "tiny", "type": "tiny", "base_url": base_url, **changes}
    return ProviderSettings(**values)  # type: ignore[arg-type]


@asynccontextmanager
async def connected(*answers: Answer, **changes: object) -> AsyncIterator[tuple[MockUpstream, HttpClient]]:
    async with MockUpstream(*answers) as upstream:
        client = HttpClient(settings(upstream.base_url, api_key="key-1", **changes), upstream.base_url, BEARER)
        try:
            yield upstream, client
        finally:
            await client.aclose()


def call(client: HttpClient, *, stream: bool = True, request_id: str | None = None) -> AsyncGenerator[Batch, None]:
    return exchange(client, TinyUpstream(), request(stream=stream, request_id=request_id))


async def collect(batches: AsyncGenerator[Batch, None]) -> list[Event]:
    async with aclosing(batches):
        return [event async for batch in batches for event in batch]


def text_of(events: list[Event]) -> str:
    return "".join([event.text for event in events if isinstance(event, TextDelta)])


async def failure(batches: AsyncGenerator[Batch, None]) -> tuple[GatewayError, str]:
    """The error that the stream ends in, and the text before it."""
    seen: list[Event] = []
    try:
        async with aclosing(batches):
            async for batch in batches:
                seen += batch
    except GatewayError as error:
        return error, text_of(seen)
    raise AssertionError(f"the stream ended well after {text_of(seen)!r}")
