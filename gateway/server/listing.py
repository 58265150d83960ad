"""What is asked about models in a dialect's words: lists, one model that is named, and what never changes."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol, TypeVar

from adapters.front import Front, ModelListForm
from adapters.openai.model_list import CodexModelList, OpenAIModelList
from gateway.http.answer import Reply
from gateway.http.request import Request
from gateway.keys.client_key import ClientKey
from gateway.server.body import BodyReader
from gateway.server.catalogue import Catalogue
from gateway.server.exchange import Exchange
from gateway.server.routes import Route

__all__ = ["Constant", "Listing", "ListingFront", "NamedInBody", "OneModel", "model_routes", "of_client"]

_OPENAI_LIST = OpenAIModelList()
_CODEX_LIST = CodexModelList()
F = TypeVar("F", bound=Front)


class ListingFront(Front, ModelListForm, Protocol):
    """A dialect that lists models in its own form."""


def of_client(request: Request, by_header: Mapping[str, F]) -> F | None:
    """The dialect of a client that sends one of these headers."""
    return next((front for header, front in by_header.items() if header in request.headers), None)


def model_routes(
    paths: Mapping[str, ListingFront | None], by_header: Mapping[str, ListingFront], catalogue: Catalogue
) -> Mapping[str, Route]:
    """All models, and one below, for each path in the form of this dialect; None: in that of the client's, by the
    headers that it sends."""

    def form(exchange: Exchange, front: ListingFront | None) -> ModelListForm:
        other = _OPENAI_LIST if exchange.request.query.get("client_version") is None else _CODEX_LIST
        return front or of_client(exchange.request, by_header) or other

    async def all_of_them(front: ListingFront | None, exchange: Exchange) -> Reply:
        return exchange.answer(await catalogue.list_models(exchange.key, form(exchange, front)))

    async def one(front: ListingFront | None, exchange: Exchange) -> Reply:
        name = exchange.path_model or ""
        return exchange.answer(await catalogue.show_model(name, exchange.key, form(exchange, front)))

    return {
        **{path: Route({"GET": partial(all_of_them, front)}, front) for path, front in paths.items()},
        **{f"{path}/*": Route({"GET": partial(one, front)}, front) for path, front in paths.items()},
    }


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
        body = await exchange.read(self._bodies)
        name = self._parse(body)
        return exchange.answer(await self._catalogue.show_model(name, exchange.key, self._form))


class OneModel:
    """The model that the query names, or the one that stands in where it names none."""

    def __init__(self, form: ModelListForm, catalogue: Catalogue) -> None:
        self.front = None
        self._form = form
        self._catalogue = catalogue

    async def serve(self, exchange: Exchange) -> Reply:
        catalogue, key = self._catalogue, exchange.key
        name = exchange.request.query.get("model") or catalogue.unnamed(key)
        return exchange.answer(await catalogue.show_model(name, key, self._form))


class Constant:
    """`content_type` None: JSON."""

    def __init__(self, front: Front, body: bytes, *, content_type: str | None = None) -> None:
        self.front = front
        self._body = body
        self._headers = {} if content_type is None else {"Content-Type": content_type}

    async def serve(self, exchange: Exchange) -> Reply:
        return exchange.answer(self._body, self._headers)
