"""A request of the Responses API with everything that it needs of what is kept, and what is kept of its answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson
from msgspec.structs import replace as replace_fields

from adapters.canonical.errors import InvalidRequest, NotFound
from adapters.canonical.request import Request
from adapters.front import AnswerHead
from adapters.openai.responses.front import ResponsesFront
from adapters.openai.responses.item_list import listed_items
from adapters.openai.responses.kept import id_of, referenced_ids, resolved_items
from adapters.openai.responses.live import LiveResponse
from adapters.openai.responses.parse import Asked, State
from gateway.storage.records import KeptItem, KeptResponse
from gateway.storage.storage import Storage

__all__ = ["Preparation", "Prepared", "kept_items"]

_RUNNING = ("queued", "in_progress")
_PARENT = "previous_response_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """`given` are the input's items as they are kept; `store` says whether anything is. `before` is what a response
    that follows on this one would have before its own input, without what this one makes."""

    owner: str
    front: ResponsesFront
    request: Request
    head: AnswerHead
    state: State
    store: bool
    before: Sequence[KeptItem]
    given: Sequence[KeptItem]

    def with_request_id(self, request_id: str) -> "Prepared":
        """The same for a client whose request has this id, unless its body gives one."""
        if self.request.request_id is not None:
            return self
        return replace(self, request=replace_fields(self.request, request_id=request_id))

    def live(self, *, heard: bool = True) -> LiveResponse:
        """The response, before anything of it is made. `heard` False: nobody wants its events."""
        return self.front.live(self.request, self.head, heard=heard)

    def record(self, live: LiveResponse, *, worker: str | None = None) -> KeptResponse:
        """The response as it is now."""
        return KeptResponse(
            id=self.head.id,
            owner=self.owner,
            created=self.head.created,
            status=live.status,
            body=live.snapshot(),
            background=self.state.background,
            parent=self.state.previous_response_id,
            conversation=self.state.conversation,
            worker=worker,
        )


class Preparation:
    """`now` gives Unix seconds."""

    def __init__(self, storage: Storage, now: Callable[[], float]) -> None:
        self._storage = storage
        self._now = now

    async def prepare(
        self,
        asked: Asked,
        front: ResponsesFront,
        *,
        owner: str,
        response_id: str,
        recent: Mapping[str, Sequence[KeptItem]] | None = None,
    ) -> Prepared:
        """Raises InvalidRequest, and NotFound for what is not there.

        `recent` are responses that nobody keeps but this client's connection, with everything up to their end.
        """
        state = asked.state
        store = state.store is not False
        before = await self.before(owner, state, recent or {})
        references = await self._references(owner, asked.input_items, before)
        kept: dict[str, bytes] = {"store": b"true" if store else b"false"}
        if state.background:
            kept["background"] = b"true"
        if state.conversation is not None:
            kept["conversation"] = orjson.dumps({"id": state.conversation})
        request = asked.request(front.seal, before=[item.raw for item in before], references=references, kept=kept)
        return Prepared(
            owner=owner,
            front=front,
            request=request,
            head=AnswerHead(response_id, int(self._now()), request.model),
            state=state,
            store=store,
            before=before,
            given=kept_items(listed_items(resolved_items(asked.input_items, references), response_id)),
        )

    async def keep(self, prepared: Prepared, live: LiveResponse) -> None:
        """Keeps a response that is final, where it is to be kept."""
        if prepared.store:
            stores = await self._storage.stores()
            made = kept_items(live.kept_items())
            await stores.responses.add(prepared.record(live), prepared.given, made)

    async def before(self, owner: str, state: State, recent: Mapping[str, Sequence[KeptItem]]) -> Sequence[KeptItem]:
        """The items before the input. Raises what `prepare` raises."""
        parent, conversation = state.previous_response_id, state.conversation
        if parent is not None:
            return recent[parent] if parent in recent else await self._chain(owner, parent)
        if conversation is None:
            return ()
        stores = await self._storage.stores()
        if await stores.conversations.find(owner, conversation) is None:
            why = f"there is no conversation '{conversation[:100]}'"
            raise NotFound.at("conversation", why, code="conversation_not_found")
        return await stores.conversations.all_items(conversation)

    async def _chain(self, owner: str, parent: str) -> Sequence[KeptItem]:
        chain = await (await self._storage.stores()).responses.chain(owner, parent)
        if chain is None or chain.missing is not None:
            what = f"'{parent[:100]}'" if chain is None or chain.missing is None else f"'{chain.missing}' before it"
            raise NotFound.at(_PARENT, f"the response {what} is not kept here", code="previous_response_not_found")
        if chain.status in _RUNNING:
            raise InvalidRequest.at(
                _PARENT,
                f"the response is still {chain.status}; wait for its end",
                code="previous_response_not_finished",
            )
        return chain.items

    async def _references(self, owner: str, items: Sequence[bytes], before: Sequence[KeptItem]) -> Mapping[str, bytes]:
        wanted = set(referenced_ids(items))
        if not wanted:
            return {}
        found = {item.id: item.raw for item in before if item.id in wanted}
        left = wanted - found.keys()
        if left:
            found.update(await (await self._storage.stores()).responses.find_items(owner, left))
        return found


def kept_items(items: Sequence[bytes]) -> list[KeptItem]:
    """Items that have ids."""
    return [KeptItem(id_of(item), item) for item in items]
