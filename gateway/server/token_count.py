"""A request that asks how long its prompt is, not for an answer."""

from typing import Protocol

from msgspec.structs import replace

from adapters.canonical.request import Request
from adapters.front import Front
from gateway.http.answer import Reply
from gateway.routing.abilities import count_tokens
from gateway.server.answer_headers import forwarded_headers
from gateway.server.exchange import Exchange
from gateway.server.generation import admit
from gateway.server.means import Means
from gateway.server.reservation import reserve

__all__ = ["CountingFront", "TokenCount"]


class CountingFront(Front, Protocol):
    """A dialect that has words for it."""

    def parse_count(self, body: bytes, *, max_depth: int) -> Request:
        """The request whose prompt is to be counted. Raises InvalidRequest, naming the path."""
        ...

    def render_count(self, tokens: int) -> bytes: ...


class TokenCount:
    def __init__(self, front: CountingFront, means: Means) -> None:
        self.front = front
        self._means = means

    async def serve(self, exchange: Exchange) -> Reply:
        means, router = self._means, self._means.router
        body = await exchange.read(means.bodies)
        request = self.front.parse_count(body, max_depth=means.max_depth)
        if exchange.path_model is not None:
            request = replace(request, model=exchange.path_model)
        exchange.model, exchange.streams = request.model, False
        await admit(exchange, request, router.names)
        await reserve(exchange, request.model, None, router.names)
        progress = exchange.begin_routing()
        headers = forwarded_headers(exchange.request, self.front.forwarded_headers)
        asked = replace(request, request_id=exchange.request_id, headers=headers)
        tokens = await count_tokens(router, asked, progress, self.front.client_field)
        return exchange.answer(self.front.render_count(tokens))
