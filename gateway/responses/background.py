"""Answers that are made in the background: one owner of their tasks, which bounds them, and ends each exactly once.

    queued -> in_progress -> completed | incomplete | failed | cancelled

The maker's task alone ends a response: whoever cancels asks it to, and waits. What the database has is decided there by
the first that ends it, so that of two processes one counts.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

from adapters.canonical.errors import GatewayError, InternalError, NotReady, QueueFull
from adapters.openai.responses.kept import salvaged
from adapters.openai.responses.wire_events import ResponseEvent
from gateway.failures import internal_error, shutting_down
from gateway.responses.event_log import EventLogs, Journal, LostError, kept_events
from gateway.responses.prepared import Prepared, kept_items
from gateway.responses.workers import is_dead
from gateway.routing.router import Progress
from gateway.storage.records import Advance, Final
from gateway.storage.storage import Storage
from gateway.tools.answers import ToolAnswers
from gateway.usage.estimate import unreported_usage

if TYPE_CHECKING:
    from gateway.storage.opening import Stores

__all__ = ["Background", "Job", "Limits"]

_LEASE_S = 60.0
_RENEW_S = 15.0
_PAGE = 1000


class FaultLog(Protocol):
    """Where faults of our own are told."""

    def fault(self, error: BaseException, *, request_id: str) -> None: ...


class Limits(Protocol):
    """How many at one time, and how many may wait."""

    @property
    def parallel(self) -> int: ...

    @property
    def queue(self) -> int: ...


class Job:
    """One answer. `accepted` is done once it is kept; `first` is the response at that moment."""

    def __init__(self, prepared: Prepared, progress: Progress) -> None:
        self.prepared = prepared
        self.live = prepared.live()
        self.first = b""
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.progress = progress
        self.task: asyncio.Task[None] | None = None
        self.is_cancelled = False
        self._is_stopped = False

    def stop(self, *, cancelled: bool) -> None:
        """Interrupts it, once. `cancelled`: because its client wants that."""
        if self.task is not None and not self._is_stopped and not self.live.is_final:
            self._is_stopped, self.is_cancelled = True, cancelled
            self.task.cancel()


class Background:
    """`redact` hides secrets in a text, `now` gives Unix seconds."""

    def __init__(
        self,
        storage: Storage,
        answers: ToolAnswers,
        limits: Limits,
        log: FaultLog,
        *,
        worker: str,
        redact: Callable[[str], str],
        now: Callable[[], float],
    ) -> None:
        self._storage = storage
        self._answers = answers
        self._limits = limits
        self._log = log
        self._worker = worker
        self._redact = redact
        self._now = now
        self._jobs: dict[str, Job] = {}
        self._slots = asyncio.Semaphore(limits.parallel)
        self._keeper: asyncio.Task[None] | None = None
        self._stopping = False
        self.logs = EventLogs(storage, self._lease)

    @property
    def count(self) -> int:
        """How many run or wait."""
        return len(self._jobs)

    async def submit(self, prepared: Prepared, progress: Progress) -> Job:
        """Returns once it is kept. It goes on when the client leaves. Raises QueueFull.

        `progress` is what the router is told of the request; what it reserved is settled at its end, also where it
        can't begin.
        """
        try:
            self._check_room()
        except GatewayError:
            _settle(progress)
            raise
        job = Job(prepared, progress)
        self._jobs[prepared.head.id] = job
        job.task = asyncio.get_running_loop().create_task(self._make(job))
        await asyncio.shield(job.accepted)
        return job

    def _check_room(self) -> None:
        if self._stopping:
            raise shutting_down()
        if len(self._jobs) >= self._limits.parallel + self._limits.queue:
            raise QueueFull("too many background responses wait already; try again later", retry_after_s=5)

    async def cancel(self, response_id: str) -> bool:
        """Whether this process makes it; returns when it is final, and its end is kept."""
        job = self._jobs.get(response_id)
        if job is None or job.task is None:
            return False
        job.stop(cancelled=True)
        await asyncio.wait((job.task,))
        return True

    async def end_elsewhere(self, owner: str, response_id: str) -> None:
        """Cancels a response that another process makes, which notices it when it writes."""
        stores = await self._storage.stores()
        found = await stores.responses.find(owner, response_id)
        if found is not None and found.worker is not None:
            await self._end_dead(stores, response_id, found.body, None)

    async def recover(self, stores: "Stores") -> None:
        """Ends what dead processes left. To be called when the database is opened."""
        await self.end_orphans(stores)
        if not self._stopping:
            self._keeper = asyncio.get_running_loop().create_task(self._keep_alive(stores))

    async def drain(self, seconds: float | None) -> bool:
        """Waits for what runs, at most so long; then the rest fails. Tells whether there was a rest."""
        self._stopping = True
        tasks = {job.task for job in self._jobs.values() if job.task is not None}
        late = (await asyncio.wait(tasks, timeout=seconds))[1] if tasks else set()
        await self._stop()
        return bool(late)

    async def aclose(self) -> None:
        await self._stop()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self.logs.aclose()

    async def _stop(self) -> None:
        self._stopping = True
        jobs = list(self._jobs.values())
        for job in jobs:
            job.stop(cancelled=False)
        await asyncio.gather(*[job.task for job in jobs if job.task is not None], return_exceptions=True)

    def _lease(self) -> float:
        return self._now() + _LEASE_S

    async def _make(self, job: Job) -> None:
        """The whole life of one answer. The edge of its own failure domain: nothing is raised."""
        try:
            journal = await self._accept(job)
            if journal is None:
                return
            try:
                await self._finish(job, journal, await self._answer(job, journal))
            except LostError:
                pass  # it ended elsewhere, or was deleted
            finally:
                self.logs.close(journal)
        except Exception as error:
            self._log.fault(error, request_id=job.prepared.request.request_id or job.prepared.head.id)
        finally:
            self._jobs.pop(job.prepared.head.id, None)
            _settle(job.progress)

    async def _accept(self, job: Job) -> Journal | None:
        """Keeps it as queued. None: that failed, which `accepted` tells."""
        prepared = job.prepared
        try:
            stores = await self._storage.stores()
            events = job.live.queue()
            record = prepared.record(job.live, worker=self._worker)
            job.first = record.body
            await stores.responses.add(record, prepared.given, events=kept_events(events), lease_until=self._lease())
        except BaseException as error:
            if not job.accepted.done():
                job.accepted.set_exception(shutting_down() if isinstance(error, asyncio.CancelledError) else error)
                job.accepted.exception()  # its client may have left
            if isinstance(error, GatewayError):
                return None
            raise
        job.accepted.set_result(None)
        return self.logs.open(prepared.head.id, events)

    async def _answer(self, job: Job, journal: Journal) -> list[ResponseEvent]:
        """Makes it; the events that end it, which are not written yet."""
        live, prepared = job.live, job.prepared
        try:
            async with self._slots:
                await self.logs.write(journal, live.start(), status=live.status, body=live.snapshot())
                job.progress.task = asyncio.current_task()
                source = self._answers.of(prepared.head.id)
                stream = source.stream(prepared.request, job.progress, prepared.front.client_field)
                async with aclosing(stream) as batches:
                    async for batch in batches:
                        await self.logs.write(journal, live.feed(batch))
                await self.logs.write(journal, live.feed(unreported_usage(prepared.request, job.progress)))
            return live.finish()
        except asyncio.CancelledError:
            if job.is_cancelled:
                return live.cancel()
            return live.fail(NotReady("the gateway stopped before the response was whole", code="gateway_stopped"))
        except GatewayError as error:
            return live.fail(error.told(self._redact))
        except LostError:
            raise
        except Exception as error:
            request_id = prepared.request.request_id or prepared.head.id
            self._log.fault(error, request_id=request_id)
            return live.fail(internal_error(request_id))

    async def _finish(self, job: Job, journal: Journal, events: list[ResponseEvent]) -> None:
        live = job.live
        final = Final(status=live.status, body=live.snapshot(), items=kept_items(live.kept_items()))
        await self.logs.end(journal, events, final)

    async def _keep_alive(self, stores: "Stores") -> None:
        """Renews the leases of what runs here, and ends what nobody makes any more, until it is cancelled. The edge of
        its own failure domain: what fails is tried again in the next round."""
        while True:
            await asyncio.sleep(_RENEW_S)
            try:
                if self._jobs:
                    await stores.responses.renew(list(self._jobs), self._lease())
                await self.end_orphans(stores)
            except Exception as error:
                self._log.fault(error, request_id=self._worker)

    async def end_orphans(self, stores: "Stores") -> None:
        """Fails what nobody makes any more; one that can't be ended keeps no other from it."""
        for response, lease_until in await stores.responses.running():
            is_lost = lease_until < self._now() or is_dead(response.worker or "", self._worker)
            if is_lost and response.id not in self._jobs:
                error = InternalError(
                    "the gateway that made this response stopped before it was whole", code="gateway_stopped"
                )
                try:
                    await self._end_dead(stores, response.id, response.body, error)
                except Exception as fault:
                    self._log.fault(fault, request_id=response.id)

    async def _end_dead(self, stores: "Stores", response_id: str, body: bytes, error: GatewayError | None) -> None:
        """Ends it without its maker: failed, or cancelled where there is no error."""
        while True:
            log = await _whole_log(stores, response_id)
            found = salvaged(body, log, error)
            end = Advance(
                id=response_id,
                after=found.event.sequence_number - 1,
                events=kept_events([found.event]),
                final=Final(
                    status="cancelled" if error is None else "failed",
                    body=found.body,
                    items=kept_items(found.items),
                ),
            )
            is_written = not await stores.responses.advance([end], self._lease())
            # Otherwise its maker lives, and either went on or ended it.
            if is_written or response_id not in {one.id for one, _ in await stores.responses.running()}:
                return


async def _whole_log(stores: "Stores", response_id: str) -> list[ResponseEvent]:
    log: list[ResponseEvent] = []
    while True:
        after = log[-1].sequence_number if log else -1
        rows = await stores.responses.events(response_id, after, _PAGE)
        log += [ResponseEvent(*row) for row in rows]
        if len(rows) < _PAGE:
            return log


def _settle(progress: Progress) -> None:
    if progress.charge is not None:
        progress.charge.settle()
