"""/v1/conversations and everything below. Another key's conversation is not there."""

from collections.abc import Callable, Mapping, Sequence

import orjson

from adapters.canonical.errors import MethodNotAllowed, NotFound
from adapters.openai.responses.conversation import (
    check_items,
    conversation_object,
    read_changes,
    read_items,
    read_new_conversation,
)
from adapters.openai.responses.front import ResponsesFront
from adapters.openai.responses.item_list import listed_items
from adapters.openai.responses.kept import referenced_ids, resolved_items, shown_item
from gateway.http.answer import Reply
from gateway.responses.prepared import kept_items
from gateway.server.body import BodyReader
from gateway.server.exchange import Exchange
from gateway.server.routes import Route
from gateway.server.stateful.lists import included_in, list_of_items, page_in
from gateway.storage.records import KeptConversation, KeptItem, PageOf
from gateway.storage.storage import Storage

__all__ = ["Conversations"]

_PREFIX = "conv_"


class Conversations:
    """`for_client` gives the front for one request, `now` Unix seconds."""

    def __init__(
        self,
        for_client: Callable[[Exchange], ResponsesFront],
        storage: Storage,
        bodies: BodyReader,
        *,
        now: Callable[[], float],
        max_depth: int,
    ) -> None:
        self._for_client = for_client
        self._storage = storage
        self._bodies = bodies
        self._now = now
        self._max_depth = max_depth

    @property
    def route(self) -> Route:
        return Route({"POST": self._create})

    @property
    def route_below(self) -> Route:
        return Route({"GET": self._below, "POST": self._below, "DELETE": self._below})

    async def _create(self, exchange: Exchange) -> Reply:
        has_body = exchange.request.has_body
        raws, metadata = read_new_conversation(
            await exchange.read(self._bodies) if has_body else b"", max_depth=self._max_depth
        )
        items = await self._items(exchange, raws)
        conversation = KeptConversation(
            id=f"{_PREFIX}{exchange.token}",
            owner=exchange.owner,
            created=int(self._now()),
            metadata=orjson.dumps(metadata),
        )
        await (await self._storage.stores()).conversations.add(conversation, items)
        return exchange.answer(_object(conversation))

    async def _below(self, exchange: Exchange) -> Reply:
        """Finds what the rest of the path names."""
        conversation_id, *rest = (exchange.path_model or "").split("/")
        conversation = await self._find(exchange, conversation_id)
        match rest, exchange.request.method:
            case [], "GET" | "HEAD":
                return exchange.answer(_object(conversation))
            case [], "POST":
                return await self._update(exchange, conversation)
            case [], "DELETE":
                return await self._delete(exchange, conversation)
            case ["items"], "GET" | "HEAD":
                page, include = page_in(exchange.request), included_in(exchange.request)
                stores = await self._storage.stores()
                found = await stores.conversations.items(conversation.id, page)
                return exchange.answer(list_of_items(found, include))
            case ["items"], "POST":
                return await self._append(exchange, conversation)
            case ["items", item_id], "GET" | "HEAD":
                return await self._show_item(exchange, conversation, item_id)
            case ["items", item_id], "DELETE":
                return await self._delete_item(exchange, conversation, item_id)
            case ["items"] | ["items", _], method:
                raise MethodNotAllowed(f"{method} is not allowed here")
        raise NotFound(f"there is no {exchange.request.decoded_path[:200]}", code="unknown_url")

    async def _update(self, exchange: Exchange, conversation: KeptConversation) -> Reply:
        metadata = orjson.dumps(read_changes(await exchange.read(self._bodies), max_depth=self._max_depth))
        stores = await self._storage.stores()
        await stores.conversations.set_metadata(conversation.owner, conversation.id, metadata)
        return exchange.answer(conversation_object(conversation.id, conversation.created, metadata))

    async def _delete(self, exchange: Exchange, conversation: KeptConversation) -> Reply:
        stores = await self._storage.stores()
        if not await stores.conversations.delete(conversation.owner, conversation.id):
            raise _missing(conversation.id)
        gone = {"id": conversation.id, "object": "conversation.deleted", "deleted": True}
        return exchange.answer(orjson.dumps(gone))

    async def _append(self, exchange: Exchange, conversation: KeptConversation) -> Reply:
        raws = read_items(await exchange.read(self._bodies), max_depth=self._max_depth)
        include = included_in(exchange.request)
        items = await self._items(exchange, raws)
        await (await self._storage.stores()).conversations.append(conversation.id, items)
        return exchange.answer(list_of_items(PageOf(items, has_more=False), include))

    async def _show_item(self, exchange: Exchange, conversation: KeptConversation, item_id: str) -> Reply:
        include = included_in(exchange.request)
        found = await (await self._storage.stores()).conversations.find_item(conversation.id, item_id)
        if found is None:
            raise _missing_item(item_id)
        return exchange.answer(shown_item(found, include))

    async def _delete_item(self, exchange: Exchange, conversation: KeptConversation, item_id: str) -> Reply:
        if not await (await self._storage.stores()).conversations.delete_item(conversation.id, item_id):
            raise _missing_item(item_id)
        return exchange.answer(_object(conversation))

    async def _items(self, exchange: Exchange, raws: Sequence[bytes]) -> list[KeptItem]:
        """The items as they are kept. Raises InvalidRequest, naming the path."""
        references: Mapping[str, bytes] = {}
        wanted = set(referenced_ids(raws))
        if wanted:
            stores = await self._storage.stores()
            references = await stores.responses.find_items(exchange.owner, wanted)
        check_items(raws, self._for_client(exchange).seal, references)
        return kept_items(listed_items(resolved_items(raws, references), f"resp_{exchange.token}"))

    async def _find(self, exchange: Exchange, conversation_id: str) -> KeptConversation:
        stores = await self._storage.stores()
        found = await stores.conversations.find(exchange.owner, conversation_id)
        if found is None:
            raise _missing(conversation_id)
        return found


def _object(conversation: KeptConversation) -> bytes:
    return conversation_object(conversation.id, conversation.created, conversation.metadata)


def _missing(conversation_id: str) -> NotFound:
    return NotFound(f"there is no conversation '{conversation_id[:100]}'", code="conversation_not_found")


def _missing_item(item_id: str) -> NotFound:
    return NotFound(f"there is no item '{item_id[:100]}' in this conversation", code="item_not_found")
