"""Chat completions with `store: true`: kept as they are made, then listed, shown, changed and deleted.

What an upstream might keep for its account is not asked for: the gateway keeps it for the client's key.
"""

import re
from collections.abc import Sequence
from functools import partial

import orjson
from msgspec.structs import replace

from adapters.canonical.errors import GatewayError, MethodNotAllowed, NotFound
from adapters.canonical.events import Event
from adapters.canonical.request import Request
from adapters.canonical.result import Folder, Result
from adapters.front import AnswerHead, Front, StreamRenderer
from adapters.openai.chat.kept import chat_with_metadata, metadata_of, said_before
from adapters.openai.responses.conversation import read_changes
from gateway.http.answer import Reply
from gateway.routing.router import Router
from gateway.server.body import BodyReader
from gateway.server.exchange import Exchange
from gateway.server.generation import streamed, whole_result
from gateway.server.routes import Handler, Route
from gateway.server.stateful.lists import list_body, page_in
from gateway.storage.records import KeptChat, KeptItem
from gateway.storage.storage import Storage

__all__ = ["KeptChats"]

_METADATA = re.compile(r"metadata\[(.+)\]")


class KeptChats:
    def __init__(
        self, storage: Storage, router: Router, bodies: BodyReader, *, max_depth: int, keepalive_s: float
    ) -> None:
        self._storage = storage
        self._router = router
        self._bodies = bodies
        self._max_depth = max_depth
        self._keepalive_s = keepalive_s

    def routes(self, path: str, create: Handler, front: Front) -> dict[str, Route]:
        """Those of the path where completions are made, and below it."""
        return {
            path: Route({"POST": create, "GET": self._list}, front),
            f"{path}/*": Route({"GET": self._get, "POST": self._update, "DELETE": self._delete}, front),
        }

    async def answer(self, exchange: Exchange, front: Front, request: Request, head: AnswerHead) -> Reply:
        """The answer to a request that wants to be kept."""
        metadata = metadata_of(request)
        messages = [KeptItem(*said) for said in said_before(request, head.id)]
        request = replace(request, store=None, metadata=None)
        chat = partial(
            KeptChat,
            id=head.id,
            owner=exchange.owner,
            created=head.created,
            model=request.model,
            metadata=metadata,
        )

        async def keep(result: Result) -> bytes:
            body = front.render_result(request, result, head)
            await (await self._storage.stores()).chats.add(chat(body=body), messages)
            return body

        if not request.stream:
            body = await keep(await whole_result(exchange, self._router, front, request))
            return exchange.answer(body)
        exchange.renderer = renderer = _Folding(front.renderer(request, head))

        async def settle() -> None:
            if renderer.result is not None:
                await keep(renderer.result)

        exchange.settle = settle
        return await streamed(exchange, self._router, front, request, keepalive_s=self._keepalive_s)

    async def _list(self, exchange: Exchange) -> Reply:
        page = page_in(exchange.request, order="asc")
        metadata = {}
        for name, value in exchange.request.query.items():
            if (found := _METADATA.fullmatch(name)) is not None:
                metadata[found[1]] = value
        model = exchange.request.query.get("model")
        stores = await self._storage.stores()
        chats, has_more = await stores.chats.list(exchange.owner, page, model=model, metadata=metadata)
        shown = [chat_with_metadata(chat.body, chat.metadata) for chat in chats]
        return exchange.answer(list_body(shown, [chat.id for chat in chats], has_more=has_more))

    async def _get(self, exchange: Exchange) -> Reply:
        chat, rest = await self._find(exchange, ("", "messages"))
        if not rest:
            return exchange.answer(chat_with_metadata(chat.body, chat.metadata))
        page = page_in(exchange.request, order="asc")
        found = await (await self._storage.stores()).chats.messages(chat.id, page)
        raws, ids = [item.raw for item in found.items], [item.id for item in found.items]
        return exchange.answer(list_body(raws, ids, has_more=found.has_more))

    async def _update(self, exchange: Exchange) -> Reply:
        chat, _ = await self._find(exchange, ("",))
        body = await exchange.read(self._bodies)
        metadata = read_changes(body, max_depth=self._max_depth)
        await (await self._storage.stores()).chats.set_metadata(chat.id, metadata)
        return exchange.answer(chat_with_metadata(chat.body, metadata))

    async def _delete(self, exchange: Exchange) -> Reply:
        chat, _ = await self._find(exchange, ("",))
        if not await (await self._storage.stores()).chats.delete(chat.owner, chat.id):
            raise _missing(chat.id)
        gone = {"id": chat.id, "object": "chat.completion.deleted", "deleted": True}
        return exchange.answer(orjson.dumps(gone))

    async def _find(self, exchange: Exchange, allowed: Sequence[str]) -> tuple[KeptChat, str]:
        """The completion that the path names, and what stands behind it there."""
        chat_id, _, rest = (exchange.path_model or "").partition("/")
        if rest not in ("", "messages"):
            raise NotFound(f"there is no {exchange.request.decoded_path[:200]}", code="unknown_url")
        if rest not in allowed:
            raise MethodNotAllowed(f"{exchange.request.method} is not allowed here, expected GET")
        found = await (await self._storage.stores()).chats.find(exchange.owner, chat_id)
        if found is None:
            raise _missing(chat_id)
        return found, rest


class _Folding:
    """Renders a stream and folds it; `result` is there once the stream ended well."""

    def __init__(self, renderer: StreamRenderer) -> None:
        self._renderer = renderer
        self._folder = Folder()
        self.result: Result | None = None

    def feed(self, events: Sequence[Event]) -> bytes:
        self._folder.feed(events)
        return self._renderer.feed(events)

    def finish(self) -> bytes:
        self.result = self._folder.result()
        return self._renderer.finish()

    def fail(self, error: GatewayError) -> bytes:
        return self._renderer.fail(error)


def _missing(chat_id: str) -> NotFound:
    return NotFound(f"there is no chat completion '{chat_id[:100]}'", code="completion_not_found")
