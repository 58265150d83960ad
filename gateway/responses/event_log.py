"""The event logs of responses that are made in the background: written in groups, read by any number of readers.

An event is in the database before a reader gets it. The events of all responses that wait at one time go into one
transaction, at the latest after a tick, at once when there are many or when a response ends. Readers take what was
written from memory while they keep up, else from the database, each at its own pace.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence

from adapters.canonical.errors import NotFound
from adapters.openai.responses.response_object import FINAL
from adapters.openai.responses.wire_events import ResponseEvent
from gateway.storage.records import Advance, Final, KeptEvent
from gateway.storage.storage import Storage

__all__ = ["EventLogs", "Journal", "LostError", "kept_events"]

_TICK_S = 0.025
_GROUP = 64
"""As soon as this many wait, they are written without waiting for the tick."""
_WAITING = 1024
"""A response with this many events that are not written yet is held up until they are."""
_TAIL = 512
_PAGE = 256
_POLL_S = 1.0
"""How often a response is looked at that another process makes."""
LAST_EVENTS = frozenset(("response.completed", "response.incomplete", "response.failed"))


class LostError(Exception):
    """The response ended elsewhere, or was deleted: its maker has to stop, and nothing more of it is written."""


class Journal:
    """The log of one response, for its maker."""

    def __init__(self, response_id: str, written: Sequence[ResponseEvent]) -> None:
        self.response_id = response_id
        self.tail = deque(written, maxlen=_TAIL)
        """The newest events that are written."""
        self.waiting: list[ResponseEvent] = []
        self.status: str | None = None
        self.body: bytes | None = None
        self.final: Final | None = None
        self.failure: Exception | None = None
        """Why nothing more is written."""
        self.changed = asyncio.Event()
        """Set once something was written, or the log was closed; then there is another one."""

    def tell(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def after(self, number: int) -> list[ResponseEvent] | None:
        """What memory has behind this number; None: the database has to be asked."""
        if not self.tail or self.tail[0].sequence_number > number + 1:
            return None
        first = number + 1 - self.tail[0].sequence_number
        return [self.tail[i] for i in range(first, len(self.tail))]

    def take(self) -> Advance:
        """What is to be written."""
        events, self.waiting = self.waiting, []
        advance = Advance(
            id=self.response_id, events=kept_events(events), status=self.status, body=self.body, final=self.final
        )
        self.status = self.body = None
        return advance


class EventLogs:
    """`lease` gives the time (Unix s) until which this process is to be believed alive. Close it with `aclose`."""

    def __init__(self, storage: Storage, lease: Callable[[], float]) -> None:
        self._storage = storage
        self._lease = lease
        self._journals: dict[str, Journal] = {}
        self._dirty: dict[str, Journal] = {}
        self._wanted = asyncio.Event()
        self._hurry = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    def open(self, response_id: str, written: Sequence[ResponseEvent]) -> Journal:
        """The log of a response that begins here, with the events that are in the database already."""
        journal = self._journals[response_id] = Journal(response_id, written)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())
        return journal

    def close(self, journal: Journal) -> None:
        """Nothing more comes."""
        self._journals.pop(journal.response_id, None)
        self._dirty.pop(journal.response_id, None)
        journal.tell()

    async def write(
        self, journal: Journal, events: Sequence[ResponseEvent], *, status: str | None = None, body: bytes | None = None
    ) -> None:
        """Waits only where too much is not written yet. Raises LostError, or why nothing can be written."""
        self._add(journal, events)
        journal.status = status or journal.status
        journal.body = body or journal.body
        if len(journal.waiting) >= _WAITING:
            await self._written(journal)

    async def end(self, journal: Journal, events: Sequence[ResponseEvent], final: Final) -> None:
        """Returns when the end is written. Raises what `write` raises."""
        self._add(journal, events)
        journal.final = final
        self._hurry.set()
        await self._written(journal)

    async def follow(self, owner: str, response_id: str, after: int) -> AsyncGenerator[list[ResponseEvent], None]:
        """The events behind this number, those to come included, up to the last one. Raises NotFound."""
        stores = await self._storage.stores()
        while True:
            journal = self._journals.get(response_id)
            changed = None if journal is None else journal.changed
            found = await stores.responses.find(owner, response_id) if journal is None else None
            events = None if journal is None else journal.after(after)
            if events is None:
                rows = await stores.responses.events(response_id, after, _PAGE)
                events = [ResponseEvent(*row) for row in rows]
            if events:
                yield events
                after = events[-1].sequence_number
                if events[-1].name in LAST_EVENTS:
                    return
            elif changed is not None:
                await changed.wait()
            elif found is None:
                raise NotFound(f"there is no response '{response_id[:100]}'")
            elif found.status in FINAL:
                return
            else:
                await asyncio.sleep(_POLL_S)

    async def aclose(self) -> None:
        """Call it when no response is made any more."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)

    def _add(self, journal: Journal, events: Sequence[ResponseEvent]) -> None:
        if journal.failure is not None:
            raise journal.failure
        journal.waiting += events
        self._dirty[journal.response_id] = journal
        self._wanted.set()
        if len(journal.waiting) >= _GROUP:
            self._hurry.set()

    async def _written(self, journal: Journal) -> None:
        while journal.waiting or journal.final is not None:
            self._hurry.set()
            await journal.changed.wait()
            if journal.failure is not None:
                raise journal.failure

    async def _write(self) -> None:
        """Writes whatever waits, group by group."""
        loop = asyncio.get_running_loop()
        written = loop.time() - _TICK_S
        while True:
            await self._wanted.wait()
            await _until(self._hurry, written + _TICK_S)
            self._wanted.clear()
            self._hurry.clear()
            journals, self._dirty = self._dirty, {}
            taken = [(journal, list(journal.waiting)) for journal in journals.values()]
            advances = [journal.take() for journal, _ in taken]
            failure: Exception | None = None
            lost: frozenset[str] = frozenset()
            try:
                lost = await (await self._storage.stores()).responses.advance(advances, self._lease())
            except Exception as error:  # whatever it is, the makers of these responses have to know
                failure = error
            written = loop.time()
            for (journal, events), advance in zip(taken, advances, strict=True):
                journal.failure = failure or (LostError() if journal.response_id in lost else None)
                if advance.final is not None:
                    journal.final = None
                if journal.failure is None:
                    journal.tail.extend(events)
                journal.tell()


async def _until(event: asyncio.Event, when: float) -> None:
    """Until the event is set, at the latest at this time of the loop."""
    loop = asyncio.get_running_loop()
    if event.is_set() or loop.time() >= when:
        return
    timer = loop.call_at(when, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


def kept_events(events: Sequence[ResponseEvent]) -> list[KeptEvent]:
    return [KeptEvent(event.sequence_number, event.name, event.data) for event in events]
