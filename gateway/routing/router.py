"""From a request to one target's answer: the one owner of tries, failover and the whole deadline.

Before the first output a failed try may be repeated, or another target asked; after it nothing is retried (law 13).
Knows no HTTP and no dialect.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol, TypeVar

from adapters.canonical.errors import ContentRefused, ContextOverflow, GatewayError, NotReady, UnsupportedParameter
from adapters.canonical.request import Request
from gateway.guardrails.guardrail import Subject
from gateway.guardrails.guardrails import Guardrails
from gateway.routing.affinity import affinity_of, session_of
from gateway.routing.attempt import AttemptKind, AttemptObserver
from gateway.routing.attempts import Attempts, RoutingRules, Walking
from gateway.routing.call import Call, fastest, is_filtered
from gateway.routing.deadline import Deadline
from gateway.routing.eligibility import eligible, wanted_tags, with_conditions_met, without_tags
from gateway.routing.fitting import Spelling
from gateway.routing.guard import FinishGuard
from gateway.routing.health import Health
from gateway.routing.names import Names
from gateway.routing.probes import Probes
from gateway.routing.progress import Progress
from gateway.routing.requirements import fit_target, in_client_words
from gateway.routing.route import Asked, Route, Target
from gateway.routing.shadows import Shadows
from gateway.routing.thoughts import KeptThoughts
from gateway.routing.truncation import shortened
from providers.base import Batch
from providers.client_key import give_own_key_to
from providers.custom_tools import custom_calls, custom_names
from providers.shared_limit import SharedLimit

__all__ = ["Progress", "Router", "RoutingRules"]

T = TypeVar("T")


def _unheard(error: BaseException) -> None:
    """The loop's own handler gets what nobody listens for."""
    asyncio.get_running_loop().call_exception_handler({"message": "a shadow failed", "exception": error})


class AnswerCache(Protocol):
    """Answers again what was answered before (`gateway.cache`)."""

    def stream(
        self, request: Request, progress: Progress, answer: Callable[[], AsyncGenerator[Batch, None]]
    ) -> AsyncGenerator[Batch, None]: ...


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
        cache: AnswerCache | None = None,
    ) -> None:
        self.guardrails = guardrails
        self._cache = cache
        self.names = names
        self._thoughts = KeptThoughts(clock)
        self.health = Health(rules.breaker, clock) if health is None else health
        self._rules = rules
        self._probes = Probes(clock)
        self.health.opened.append(self._probes.watch)
        self._walking = Walking(rules, self.health, clock, random, observer)
        self.shadows = Shadows(self._walking, fault)
        self._deadlines = SharedLimit(rules.total_s, Deadline.expire)

    def look_for_providers(self, gone: Callable[[str], None]) -> None:
        """Asks, in the background and without a token, each provider behind a public name whether it is there. `gone`
        is told the name of one that is not; the breakers of its targets are open then."""
        targets = {target: None for route in self.names.aliases.values() for target in route.answering}
        self._probes.look([self.health.of(target) for target in targets], gone)

    async def aclose(self) -> None:
        """Cancels shadows and probes."""
        await self.shadows.aclose()
        await self._probes.aclose()

    def stream(self, request: Request, progress: Progress, spell: Spelling) -> AsyncGenerator[Batch, None]:
        """The answer's events. The first batch brings the first output; before it a GatewayError means that nothing
        was said. Closing the iterator, or cancelling the task that waits on it, stops the provider."""
        if self._cache is not None:
            return self._cache.stream(request, progress, partial(self._fresh, request, progress, spell))
        return self._fresh(request, progress, spell)

    def _fresh(self, request: Request, progress: Progress, spell: Spelling) -> AsyncGenerator[Batch, None]:
        """An answer that is made now."""
        if self.guardrails is None:
            return self._stream(request, progress, spell)
        return self._guarded(self.guardrails, request, progress, spell)

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
        give_own_key_to(route.targets[0].provider.name)
        request = self._thoughts.restored(route.shaped(request), progress.key or "")
        watch = self._thoughts.watch(request, progress.key or "")
        targets = self._plan(route, request, progress)
        if request.metadata is not None and route.has_tags:
            request = without_tags(request)
        deadline = Deadline(self._deadlines, progress.task)
        detours = None if progress.tags else route.detours
        with Attempts(targets, self._walking, deadline=deadline, progress=progress, detours=detours) as attempts:
            call, batch = await self._answering(route, request, attempts, spell)
            try:
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
            except GatewayError as error:
                deadline.armed = False
                if not call.guard.complete:
                    attempts.broke(call.attempt, error)
                    raise
                # Every choice is whole: a fault after that takes nothing away (law 4).
            finally:
                await call.batches.aclose()
            attempts.finished(call.attempt)
            if watch is not None:
                watch.close()

    async def _answering(
        self, route: Route, request: Request, attempts: Attempts, spell: Spelling
    ) -> tuple[Call, Batch]:
        """The call that answers, and its batch with the first output: until then anything may be asked again.

        Raises what the client is told where none answers. Who gets the call closes it.
        """
        deadline, progress = attempts.deadline, attempts.progress
        while (target := await attempts.next()) is not None:
            call = self._begin(request, target, attempts, spell)
            if call is None:
                continue
            try:
                deadline.armed = True
                if route.hedge_s:
                    another = partial(self._hedge, request, attempts, spell)
                    call = await fastest(call, route.hedge_s, another, attempts)
                else:
                    await call.open()
                deadline.armed = False
                batch = _first(call, attempts)
                if route.shadow is not None and not progress.tags:
                    self.shadows.copy(route.shadow, request, spell, progress)
                return call, batch
            except UnsupportedParameter as error:
                attempts.lacks(call.attempt, in_client_words(error, spell))
            except GatewayError as error:
                in_client_words(error, spell)
                shorter = shortened(request) if isinstance(error, ContextOverflow) else None
                if shorter is None:
                    attempts.failed(call.attempt, error)
                else:
                    request = shorter
                    attempts.again(call.attempt, error)
            finally:
                deadline.armed = False
                if call.attempt.first_output is None:
                    await call.batches.aclose()
        raise attempts.verdict()

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
        give_own_key_to(route.targets[0].provider.name)
        targets = self._plan(route, None, progress)
        deadline = Deadline(self._deadlines, progress.task)
        with Attempts(targets, self._walking, deadline=deadline, progress=progress) as attempts:
            while (target := await attempts.next()) is not None:
                attempt = attempts.begin(target)
                try:
                    deadline.armed = True
                    answer = await call(target)
                    attempts.answered(attempt)
                    attempts.finished(attempt)
                    return answer
                except UnsupportedParameter as error:
                    attempts.lacks(attempt, error)
                except GatewayError as error:
                    if not may_repeat():
                        attempts.broke(attempt, error)
                        raise
                    attempts.failed(attempt, error)
                finally:
                    deadline.armed = False
            raise attempts.verdict()

    async def _route(self, model: str) -> Route:
        """Raises ModelNotFound, and NotReady where nothing can answer."""
        route = await self.names.resolve(model)
        if not route.targets:
            raise NotReady(f"no provider of the model '{model}' is switched on")
        return route

    def _plan(self, route: Route, request: Request | None, progress: Progress) -> Sequence[Target]:
        """The targets in the order in which they are asked. `request` None: no generation.

        Raises InvalidRequest where none has the tags that are asked for, or the conditions of all speak against it.
        """
        targets: Sequence[Target] = route.targets
        metadata = None
        if request is not None:
            progress.model, progress.stream = request.model, request.stream
            metadata = request.metadata
        progress.session_id = session_of(progress, request)
        progress.tags = wanted_tags(progress, metadata if metadata is not None and route.has_tags else None)
        if progress.tags:
            targets = eligible(targets, progress)
        if route.has_conditions:
            follow = bool(route.on_failure) and not progress.tags
            targets = with_conditions_met(targets, progress, metadata, others_follow=follow)
        if route.strategy is not None and len(targets) > 1:
            targets = route.strategy.order(targets, Asked(progress.stream, partial(affinity_of, progress, request)))
        if route.on_failure and not progress.tags:
            targets = (*targets, *route.on_failure)
        return targets

    def _begin(
        self, request: Request, target: Target, attempts: Attempts, spell: Spelling, *, kind: AttemptKind | None = None
    ) -> Call | None:
        """Calls the target. None: it cannot express the request, and is passed over."""
        try:
            fitted = fit_target(request, target, spell, completions_as_chat=self._rules.completions_as_chat)
        except UnsupportedParameter as error:
            attempts.pass_over(target, error)
            return None
        guard = FinishGuard(fitted.request.num_choices, fitted.request.tools)
        batches = target.provider.stream(fitted.request)
        if custom := custom_names(request):
            batches = custom_calls(batches, custom)
        call = Call(attempts.begin(target, kind), batches, guard, fitted.dropped)
        attempts.progress.dropped, attempts.progress.guard = fitted.dropped, guard
        return call

    def _hedge(self, request: Request, attempts: Attempts, spell: Spelling) -> Call | None:
        """Calls the next target that can answer, beside the one that is silent."""
        while (target := attempts.spare()) is not None:
            call = self._begin(request, target, attempts, spell, kind=AttemptKind.HEDGE)
            if call is not None:
                return call
        return None


def _first(call: Call, attempts: Attempts) -> Batch:
    """The batch with the first output, which makes this call the answer. Raises what came in its place."""
    if call.failure is not None:
        raise call.failure
    batch, call.first = call.first or [], None
    if attempts.has_detour(ContentRefused) and is_filtered(batch):
        raise ContentRefused("the upstream's filter took the answer")
    attempts.answered(call.attempt)
    attempts.progress.dropped, attempts.progress.guard = call.dropped, call.guard
    return batch
