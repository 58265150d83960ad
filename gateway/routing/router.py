"""From a request to one target's answer: the one owner of tries, failover and the whole deadline.

Before the first output a failed try may be repeated, or another target asked; after it nothing is retried (law 13).
Knows no HTTP and no dialect.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from adapters.canonical.errors import ContentRefused, ContextOverflow, GatewayError, NotReady, UnsupportedParameter
from adapters.canonical.request import Request
from gateway.guardrails.guardrail import Subject
from gateway.guardrails.guardrails import Guardrails
from gateway.routing.affinity import affinity_of, session_of
from gateway.routing.attempt import Attempt, AttemptKind, AttemptObserver
from gateway.routing.attempts import Attempts, RoutingRules, Walking
from gateway.routing.call import Call, fastest, is_filtered
from gateway.routing.conditions import eligible, wanted_tags
from gateway.routing.deadline import Deadline, Deadlines
from gateway.routing.guard import FinishGuard
from gateway.routing.health import Health
from gateway.routing.names import Names
from gateway.routing.probes import Probes
from gateway.routing.progress import Progress
from gateway.routing.requirements import Spelling, fit_target
from gateway.routing.route import Asked, Detours, Route, Target
from gateway.routing.shadows import Shadows
from gateway.routing.thoughts import KeptThoughts
from gateway.routing.truncation import shortened
from providers.base import Batch

__all__ = ["Progress", "Router", "RoutingRules"]

T = TypeVar("T")


def _unheard(error: BaseException) -> None:
    """The loop's own handler gets what nobody listens for."""
    asyncio.get_running_loop().call_exception_handler({"message": "a shadow failed", "exception": error})


class Router:
    """`clock` gives seconds of any origin, `random` numbers from 0 to 1. `observer` sees every attempt; `fault` is told
    of exceptions in shadows. `health` None: a record of its own (strategies that were built before share theirs)."""

    def __init__(
        self,
        names: Names,
        rules: RoutingRules,
        random: Callable[[], float],
        *,
        clock: Callable[[], float] = time.monotonic,
        health: Health | None = None,
        observer: AttemptObserver | None = None,
        fault: Callable[[BaseException], None] = _unheard,
        guardrails: Guardrails | None = None,
    ) -> None:
        self._guardrails = guardrails
        self.names = names
        self._thoughts = KeptThoughts(clock)
        self.health = Health(rules.breaker, clock) if health is None else health
        self._rules = rules
        self._probes = Probes(clock)
        self.health.opened = self._probes.watch
        self._walking = Walking(rules, self.health, clock, random, observer)
        self.shadows = Shadows(self._walking, fault)
        self._deadlines = Deadlines(rules.total_s)

    async def aclose(self) -> None:
        """Cancels shadows and probes."""
        await self.shadows.aclose()
        await self._probes.aclose()

    def stream(self, request: Request, progress: Progress, spell: Spelling) -> AsyncGenerator[Batch, None]:
        """The answer's events. The first batch brings the first output; before it a GatewayError means that nothing
        was said. Closing the iterator, or cancelling the task that waits on it, stops the provider."""
        if self._guardrails is None:
            return self._stream(request, progress, spell)
        return self._guarded(self._guardrails, request, progress, spell)

    async def _guarded(
        self, guardrails: Guardrails, request: Request, progress: Progress, spell: Spelling
    ) -> AsyncGenerator[Batch, None]:
        """The same between guardrails."""
        subject = Subject(request.model, request.request_id, progress.key)
        checked = await guardrails.checked(request, subject, spell)
        batches = guardrails.around(self._stream(checked, progress, spell), subject, checked.num_choices)
        async with aclosing(batches):
            async for batch in batches:
                yield batch

    async def _stream(self, request: Request, progress: Progress, spell: Spelling) -> AsyncGenerator[Batch, None]:
        route = await self._route(request.model)
        if route.defaults is not None:
            request = route.defaults.apply(request)
        request = self._thoughts.restored(request, progress.key or "")
        watch = self._thoughts.watch(request, progress.key or "")
        deadline = self._deadlines.start(progress.task)
        attempts = self._attempts(route, request, deadline, progress)
        try:
            while (target := await attempts.next()) is not None:
                call = self._begin(request, target, attempts, progress, spell)
                if call is None:
                    continue
                try:
                    deadline.armed = True
                    if route.hedge_s:
                        another = partial(self._hedge, request, attempts, progress, spell)
                        call = await fastest(call, route.hedge_s, another, attempts)
                    else:
                        await call.open()
                    deadline.armed = False
                    batch = _first(call, attempts, progress)
                    if route.shadow is not None and not progress.tags:
                        self.shadows.copy(route.shadow, request, spell, progress)
                    if watch is not None:
                        watch.see(batch)
                    yield batch
                    if deadline.passed:
                        raise attempts.too_late(call.attempt)
                    deadline.armed = True
                    see = call.guard.see
                    async for batch in call.batches:
                        see(batch)
                        deadline.armed = False
                        if watch is not None:
                            watch.see(batch)
                        yield batch
                        if deadline.passed:
                            raise attempts.too_late(call.attempt)
                        deadline.armed = True
                    deadline.armed = False
                    call.guard.close()
                    attempts.finished(call.attempt)
                    if watch is not None:
                        watch.close()
                    return
                except GatewayError as error:
                    deadline.armed = False
                    if call.attempt.first_output is None:
                        request = _after_failure(error, request, call.attempt, attempts)
                    elif call.guard.complete:
                        attempts.finished(call.attempt)
                        if watch is not None:
                            watch.close()
                        return  # every choice is whole: a fault after that takes nothing away (law 4)
                    else:
                        attempts.broke(call.attempt, error)
                        raise
                finally:
                    await call.batches.aclose()
            raise attempts.verdict()
        except asyncio.CancelledError:
            if deadline.took():
                raise attempts.too_late() from None
            raise
        finally:
            attempts.close()
            deadline.close()

    async def ask(
        self,
        model: str,
        progress: Progress,
        call: Callable[[Target], Awaitable[T]],
        *,
        may_repeat: Callable[[], bool] = lambda: True,
    ) -> T:
        """One answer that is no stream of events, from the first target of `model` that gives it.

        `call` asks one target. An UnsupportedParameter, for an ability that the target lacks, leads to the next target.
        `may_repeat` says after a failure whether the request can still be sent once more.
        """
        progress.model = model
        return await self._ask(await self._route(model), progress, call, may_repeat)

    async def ask_targets(
        self,
        targets: Sequence[Target],
        progress: Progress,
        call: Callable[[Target], Awaitable[T]],
        *,
        may_repeat: Callable[[], bool] = lambda: True,
    ) -> T:
        """The same of these targets, for what names no model."""
        return await self._ask(Route(tuple(targets)), progress, call, may_repeat)

    async def _ask(
        self, route: Route, progress: Progress, call: Callable[[Target], Awaitable[T]], may_repeat: Callable[[], bool]
    ) -> T:
        deadline = self._deadlines.start(progress.task)
        attempts = self._attempts(route, None, deadline, progress)
        try:
            while (target := await attempts.next()) is not None:
                attempt = attempts.begin(target)
                try:
                    deadline.armed = True
                    answer = await call(target)
                    deadline.armed = False
                    attempts.answered(attempt)
                    attempts.finished(attempt)
                    return answer
                except UnsupportedParameter as error:
                    deadline.armed = False
                    attempts.lacks(attempt, error)
                except GatewayError as error:
                    deadline.armed = False
                    if not may_repeat():
                        attempts.broke(attempt, error)
                        raise
                    attempts.failed(attempt, error)
            raise attempts.verdict()
        except asyncio.CancelledError:
            if deadline.took():
                raise attempts.too_late() from None
            raise
        finally:
            attempts.close()
            deadline.close()

    async def _route(self, model: str) -> Route:
        """Raises ModelNotFound, and NotReady where nothing can answer."""
        route = await self.names.resolve(model)
        if not route.targets:
            raise NotReady(f"no provider of the model '{model}' is switched on")
        return route

    def _attempts(self, route: Route, request: Request | None, deadline: Deadline, progress: Progress) -> Attempts:
        """The walk over the route's targets in the order that its strategy gives. `request` None: no generation."""
        targets: Sequence[Target] = route.targets
        detours: Detours | None = None
        if request is not None:
            progress.model, progress.stream = request.model, request.stream
            detours = route.detours
        progress.session_id = session_of(progress, request)
        metadata = request.metadata if request is not None else None
        tags = wanted_tags(progress, metadata if metadata is not None and route.has_tags else None)
        if tags:
            progress.tags = tags
            targets, detours = eligible(targets, progress), None
        if route.strategy is not None and len(targets) > 1:
            targets = route.strategy.order(targets, Asked(progress.stream, partial(affinity_of, progress, request)))
        if route.on_failure and not tags:
            targets = (*targets, *route.on_failure)
        return Attempts(targets, self._walking, deadline=deadline, progress=progress, detours=detours)

    def _begin(
        self,
        request: Request,
        target: Target,
        attempts: Attempts,
        progress: Progress,
        spell: Spelling,
        *,
        kind: AttemptKind | None = None,
    ) -> Call | None:
        """Calls the target. None: it cannot express the request, and is passed over."""
        try:
            fitted = fit_target(request, target, spell, completions_as_chat=self._rules.completions_as_chat)
        except UnsupportedParameter as error:
            attempts.pass_over(target, error)
            return None
        guard = FinishGuard(fitted.request.num_choices)
        call = Call(attempts.begin(target, kind), target.provider.stream(fitted.request), guard, fitted.dropped)
        progress.dropped, progress.guard = fitted.dropped, guard
        return call

    def _hedge(self, request: Request, attempts: Attempts, progress: Progress, spell: Spelling) -> Call | None:
        """Calls the next target that can answer, beside the one that is silent."""
        while (target := attempts.spare()) is not None:
            call = self._begin(request, target, attempts, progress, spell, kind=AttemptKind.HEDGE)
            if call is not None:
                return call
        return None


def _first(call: Call, attempts: Attempts, progress: Progress) -> Batch:
    """The batch with the first output, which makes this call the answer. Raises what came in its place."""
    if call.failure is not None:
        raise call.failure
    batch, call.first = call.first or [], None
    if attempts.has_detour(ContentRefused) and is_filtered(batch):
        raise ContentRefused("the upstream's filter took the answer")
    attempts.answered(call.attempt)
    progress.dropped, progress.guard = call.dropped, call.guard
    return batch


def _after_failure(error: GatewayError, request: Request, attempt: Attempt, attempts: Attempts) -> Request:
    """What is asked next, where that helps; raises the error where it does not."""
    shorter = shortened(request) if isinstance(error, ContextOverflow) else None
    if shorter is None:
        attempts.failed(attempt, error)
        return request
    attempts.again(attempt, error)
    return shorter
