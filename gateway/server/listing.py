"""What is asked about models in a dialect's words: lists, one model that a body names, and what never changes."""

from collections.abc import Awaitable, Callable

from adapters.front import Front, ModelListForm
from gateway.http.answer import Reply
from gateway.keys.client_key import ClientKey
from gateway.server.body import BodyReader
from gateway.server.catalogue import Catalogue
from gateway.server.exchange import Exchange

__all__ = ["Constant", "Listing", "NamedInBody"]


class Listing:
    """`lists` gives the models that the key may use, as a body."""

    def __init__(
        self,
        front: Front,
        form: ModelListForm,
        lists: Callable[[ClientKey | None, ModelListForm], Awaitable[bytes]],
    ) -> None:
        self.front = front
        self._form = form
        self._lists = lists

    async def serve(self, exchange: Exchange) -> Reply:
        return exchange.answer(await self._lists(exchange.key, self._form))


class NamedInBody:
    """One model. `parse` finds its name in a body."""

    def __init__(
        self,
        front: Front,
        form: ModelListForm,
        parse: Callable[[bytes], str],
        catalogue: Catalogue,
        bodies: BodyReader,
    ) -> None:
        self.front = front
        self._form = form
        self._parse = parse
        self._catalogue = catalogue
        self._bodies = bodies

    async def serve(self, exchange: Exchange) -> Reply:
        body = await self._bodies.read(exchange.request)
        exchange.held_bytes = len(body)
        name = self._parse(body)
        return exchange.answer(await self._catalogue.show_model(name, exchange.key, self._form))


class Constant:
    """`content_type` None: JSON."""

    def __init__(self, front: Front, body: bytes, *, content_type: str | None = None) -> None:
        self.front = front
        self._body = body
        self._headers = {} if content_type is None else {"Content-Type": content_type}

    async def serve(self, exchange: Exchange) -> Reply:
        return exchange.answer(self._body, self._headers)
