"""From a request to one target's answer: the one owner of tries, failover and the whole deadline.

Before the first output a failed try may be repeated, or another target asked; after it nothing is retried (law 13).
Knows no HTTP and no dialect.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace

from adapters.canonical.errors import ContextOverflow, GatewayError, InvalidRequest, NotReady, UnsupportedParameter
from adapters.canonical.events import is_output
from adapters.canonical.request import LoraAdapter, Request
from adapters.canonical.usage import Usage
from gateway.routing.attempts import Attempts, RoutingRules
from gateway.routing.deadline import Deadline, Deadlines
from gateway.routing.guard import FinishGuard
from gateway.routing.names import Names
from gateway.routing.requirements import Fitted, Spelling, fit
from gateway.routing.route import Route, Target
from gateway.routing.truncation import shortened
from providers.base import Batch

__all__ = ["Progress", "Router", "RoutingRules"]

T = TypeVar("T")


@dataclass(slots=True)
class Progress:
    """What is known about a request while it runs. The router writes it; it is settled with the first batch."""

    target: Target | None = None
    dropped: tuple[str, ...] = ()
    """Fields that were left out, as the client spells them."""
    attempts: int = 0
    failures: list[GatewayError] = field(default_factory=list)
    """Why the targets before this one did not answer."""
    guard: FinishGuard | None = None
    """Of the try that runs."""
    task: "asyncio.Task[object] | None" = None
    """Who reads the stream; None: the task that starts it."""
    counted: Usage | None = None
    """What an answer that is no stream reports."""
    upstream_request_id: str | None = None
    """The same: its id at the upstream."""

    @property
    def usage(self) -> Usage | None:
        """What was reported until now."""
        return self.guard.usage if self.guard is not None else self.counted


class Router:
    def __init__(self, names: Names, rules: RoutingRules, random: Callable[[], float]) -> None:
        self.names = names
        self._rules = rules
        self._random = random
        self._deadlines = Deadlines(rules.total_s)

    async def stream(self, request: Request, progress: Progress, spell: Spelling) -> AsyncGenerator[Batch, None]:
        """The answer's events. The first batch brings the first output; before it a GatewayError means that nothing
        was said. Closing the iterator, or cancelling the task that waits on it, stops the provider."""
        route = await self._route(request.model)
        if route.defaults is not None:
            request = route.defaults.apply(request)
        deadline = self._deadlines.start(progress.task)
        attempts = self._attempts(route.targets, deadline, progress)
        try:
            while (target := await attempts.next()) is not None:
                fitted = self._fit(request, target, progress, spell)
                if fitted is None:
                    continue
                progress.target, progress.dropped = target, fitted.dropped
                progress.attempts += 1
                progress.guard = guard = FinishGuard(fitted.request.num_choices)
                held: Batch | None = []  # before the first output; None after it
                try:
                    async with aclosing(target.provider.stream(fitted.request)) as batches:
                        deadline.armed = True
                        async for batch in batches:
                            guard.see(batch)
                            if held is not None:
                                held += batch
                                if not any(map(is_output, batch)):
                                    continue
                                batch, held = held, None
                            deadline.armed = False
                            yield batch
                            if deadline.passed:
                                raise attempts.too_late()
                            deadline.armed = True
                        deadline.armed = False
                    guard.close()
                    return
                except GatewayError as error:
                    if held is None:
                        if guard.complete:
                            return  # every choice is whole: a fault after that takes nothing away (law 4)
                        raise
                    shorter = shortened(request) if isinstance(error, ContextOverflow) else None
                    if shorter is None:
                        attempts.failed(error)
                    else:
                        request = shorter
                        attempts.again()
            raise attempts.verdict()
        except asyncio.CancelledError:
            if deadline.took():
                raise attempts.too_late() from None
            raise
        finally:
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
        return await self.ask_targets((await self._route(model)).targets, progress, call, may_repeat=may_repeat)

    async def ask_targets(
        self,
        targets: Sequence[Target],
        progress: Progress,
        call: Callable[[Target], Awaitable[T]],
        *,
        may_repeat: Callable[[], bool] = lambda: True,
    ) -> T:
        """The same of these targets, for what names no model."""
        deadline = self._deadlines.start(progress.task)
        attempts = self._attempts(targets, deadline, progress)
        lacking: UnsupportedParameter | None = None
        try:
            while (target := await attempts.next()) is not None:
                progress.target = target
                progress.attempts += 1
                try:
                    deadline.armed = True
                    answer = await call(target)
                    deadline.armed = False
                    return answer
                except UnsupportedParameter as error:
                    lacking = lacking or error
                except GatewayError as error:
                    if not may_repeat():
                        raise
                    attempts.failed(error)
                deadline.armed = False
            if not progress.failures and lacking is not None:
                raise lacking
            raise attempts.verdict()
        except asyncio.CancelledError:
            if deadline.took():
                raise attempts.too_late() from None
            raise
        finally:
            deadline.close()

    async def _route(self, model: str) -> Route:
        """Raises ModelNotFound, and NotReady where nothing can answer."""
        route = await self.names.resolve(model)
        if not route.targets:
            raise NotReady(f"no provider of the model '{model}' is switched on")
        return route

    def _attempts(self, targets: Sequence[Target], deadline: Deadline, progress: Progress) -> Attempts:
        return Attempts(targets, self._rules, self._random, deadline=deadline, failures=progress.failures)

    def _fit(self, request: Request, target: Target, progress: Progress, spell: Spelling) -> Fitted | None:
        """What the target gets. None: a later target can't express it, so the failure before it stands."""
        try:
            fitted = fit(
                request,
                target.provider.capabilities(target.model),
                spell,
                drop=target.drops_unsupported,
                completions_as_chat=self._rules.completions_as_chat,
            )
        except UnsupportedParameter:
            if progress.failures:
                return None
            raise
        asked = fitted.request
        if target.adapter is None:
            return Fitted(replace(asked, model=target.model), fitted.dropped)
        if asked.adapter is not None:
            param = spell("adapter")
            raise InvalidRequest(f"{param}: the model '{request.model}' names an adapter already", param=param)
        return Fitted(replace(asked, model=target.model, adapter=LoraAdapter(name=target.adapter)), fitted.dropped)
