"""Below /v1/responses/{id}: retrieve, resume, delete, cancel, input items. Another key's response is not there."""

from collections.abc import Sequence

import orjson

from adapters.canonical.errors import InvalidRequest, MethodNotAllowed, NotFound
from adapters.openai.responses.front import ResponsesFront
from adapters.openai.responses.kept import with_output
from adapters.openai.responses.vocabulary import ENCRYPTED
from gateway.http.answer import Reply
from gateway.http.request import Request
from gateway.responses.background import Background
from gateway.server.exchange import Exchange
from gateway.server.routes import Route
from gateway.server.stateful.lists import included_in, list_of_items, page_in
from gateway.server.stateful.response_create import send_events
from gateway.storage.records import KeptResponse
from gateway.storage.storage import Storage

__all__ = ["KeptResponses"]

_TRUE, _FALSE = ("true", "1"), ("false", "0")


class KeptResponses:
    def __init__(self, front: ResponsesFront, storage: Storage, background: Background, *, keepalive_s: float) -> None:
        self.front = front
        self._storage = storage
        self._background = background
        self._keepalive_s = keepalive_s

    @property
    def route(self) -> Route:
        """For everything below the path."""
        return Route({"GET": self._get, "POST": self._post, "DELETE": self._delete}, self.front)

    async def _get(self, exchange: Exchange) -> Reply:
        response_id, _, rest = (exchange.path_model or "").partition("/")
        if rest == "input_items":
            return await self._input_items(exchange, response_id)
        if rest:
            raise _unknown(exchange, rest, ("cancel",), "POST")
        include = included_in(exchange.request)
        if _flag(exchange.request, "stream"):
            return await self._resume(exchange, response_id)
        found = await self._find(exchange, response_id)
        body = found.body
        if ENCRYPTED in include:
            made = await (await self._storage.stores()).responses.made_items(response_id)
            body = with_output(body, [item.raw for item in made]) if made else body
        return exchange.answer(body)

    async def _post(self, exchange: Exchange) -> Reply:
        response_id, _, rest = (exchange.path_model or "").partition("/")
        if rest != "cancel":
            raise _unknown(exchange, rest, ("", "input_items"), "GET")
        found = await self._find(exchange, response_id)
        if not found.background:
            raise InvalidRequest("only background responses can be cancelled", code="response_not_background")
        if found.worker is not None:
            await self._stop(found)
            found = await self._find(exchange, response_id)
        return exchange.answer(found.body)

    async def _delete(self, exchange: Exchange) -> Reply:
        response_id, _, rest = (exchange.path_model or "").partition("/")
        if rest:
            raise _unknown(exchange, rest, ("input_items",), "GET")
        found = await self._find(exchange, response_id)
        if found.worker is not None:
            await self._stop(found)
        if not await (await self._storage.stores()).responses.delete(found.owner, response_id):
            raise _missing(response_id)
        return exchange.answer(orjson.dumps({"id": response_id, "object": "response", "deleted": True}))

    async def _input_items(self, exchange: Exchange, response_id: str) -> Reply:
        page = page_in(exchange.request)
        include = included_in(exchange.request)
        stores = await self._storage.stores()
        found = await stores.responses.given_items(exchange.owner, response_id, page)
        if found is None:
            raise _missing(response_id)
        return exchange.answer(list_of_items(found, include))

    async def _resume(self, exchange: Exchange, response_id: str) -> Reply:
        after = _number(exchange.request, "starting_after")
        found = await self._find(exchange, response_id)
        if not found.background:
            raise InvalidRequest.at("stream", "only background responses can be streamed again")
        events = self._background.logs.follow(found.owner, response_id, after)
        exchange.streams = True
        return await send_events(exchange, events, self.front, keepalive_s=self._keepalive_s)

    async def _find(self, exchange: Exchange, response_id: str) -> KeptResponse:
        found = await (await self._storage.stores()).responses.find(exchange.owner, response_id)
        if found is None:
            raise _missing(response_id)
        return found

    async def _stop(self, found: KeptResponse) -> None:
        """Returns when it is final."""
        if not await self._background.cancel(found.id):
            await self._background.end_elsewhere(found.owner, found.id)


def _missing(response_id: str) -> NotFound:
    return NotFound(f"there is no response '{response_id[:100]}'", code="response_not_found")


def _unknown(exchange: Exchange, rest: str, others: Sequence[str], method: str) -> NotFound | MethodNotAllowed:
    """`others` are what this path has for `method`."""
    if rest in others:
        return MethodNotAllowed(f"{exchange.request.method} is not allowed here, expected {method}")
    return NotFound(f"there is no {exchange.request.decoded_path[:200]}", code="unknown_url")


def _flag(request: Request, name: str) -> bool:
    value = request.query.get(name, "false").lower()
    if value not in (*_TRUE, *_FALSE):
        raise InvalidRequest.at(name, "expected true or false")
    return value in _TRUE


def _number(request: Request, name: str) -> int:
    """-1 where the client gives none."""
    value = request.query.get(name)
    if value is None:
        return -1
    if not (value.isascii() and value.isdigit() and len(value) < 16):
        raise InvalidRequest.at(name, "expected a whole number that is not negative")
    return int(value)
