"""From a request to the batches of one target's answer: the one owner of tries, failover and the whole deadline.

Before the first output a failed try may be repeated, or another target asked; after it nothing is retried (law 13).
Knows no HTTP and no dialect.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from msgspec.structs import replace

from adapters.canonical.errors import (
    GatewayError,
    InvalidRequest,
    NotReady,
    UnsupportedParameter,
    UpstreamError,
    UpstreamTimeout,
)
from adapters.canonical.events import is_output
from adapters.canonical.request import LoraAdapter, Request
from adapters.canonical.usage import Usage
from gateway.routing.deadline import Deadline, Deadlines
from gateway.routing.guard import FinishGuard
from gateway.routing.names import Names
from gateway.routing.requirements import Fitted, Spelling, fit
from gateway.routing.retries import Tries
from gateway.routing.route import Target
from providers.base import Batch

__all__ = ["Progress", "Router", "RoutingRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRules:
    """`attempts`: tries of one target in all. `total_s`: for the whole request, all tries and waits together."""

    attempts: int = 2
    max_wait_s: float = 20.0
    total_s: float = 600.0
    completions_as_chat: bool = False


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

    @property
    def usage(self) -> Usage | None:
        """What was reported until now."""
        return self.guard.usage if self.guard is not None else None


class Router:
    def __init__(self, names: Names, rules: RoutingRules, random: Callable[[], float]) -> None:
        self.names = names
        self._rules = rules
        self._random = random
        self._deadlines = Deadlines(rules.total_s)

    async def stream(self, request: Request, progress: Progress, spell: Spelling) -> AsyncGenerator[Batch, None]:
        """The answer's events. The first batch brings the first output; before it a GatewayError means that nothing
        was said. Closing the iterator, or cancelling the task that waits on it, stops the provider."""
        route = await self.names.resolve(request.model)
        if not route.targets:
            raise NotReady(f"no provider of the model '{request.model}' is switched on")
        if route.defaults is not None:
            request = route.defaults.apply(request)
        deadline = self._deadlines.start(progress.task)
        try:
            for target in route.targets:
                fitted = self._fit(request, target, progress, spell)
                if fitted is None:
                    continue
                progress.target, progress.dropped = target, fitted.dropped
                tries: Tries | None = None
                wait_s: float | None = 0.0
                while wait_s is not None:
                    if wait_s:
                        await _pause(wait_s, deadline)
                    if deadline.passed:
                        raise self._too_late()
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
                                    raise self._too_late()
                                deadline.armed = True
                            deadline.armed = False
                        guard.close()
                        return
                    except GatewayError as error:
                        if held is None:
                            if guard.complete:
                                return  # every choice is whole: a fault after that takes nothing away (law 4)
                            raise
                        tries = tries or Tries(self._rules.attempts, self._rules.max_wait_s, self._random)
                        wait_s = _next_wait(error, tries, deadline, is_last=target is route.targets[-1])
                        if wait_s is None:
                            progress.failures.append(error)
            raise _verdict(progress.failures)
        except asyncio.CancelledError:
            if deadline.took():
                raise self._too_late() from None
            raise
        finally:
            deadline.close()

    def _too_late(self) -> UpstreamTimeout:
        return UpstreamTimeout(f"the answer was not complete within {self._rules.total_s:g} s")

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


async def _pause(seconds: float, deadline: Deadline) -> None:
    deadline.armed = True
    await asyncio.sleep(seconds)
    deadline.armed = False


def _next_wait(error: GatewayError, tries: Tries, deadline: Deadline, *, is_last: bool) -> float | None:
    """Seconds until the same target is tried again, None: ask the next one. Raises what no other target would mend."""
    if not error.retryable and not error.fails_over:
        raise error
    if not error.retryable or (error.retry_after_s is not None and not is_last):
        return None  # an upstream that asks for a pause gets it while another one answers
    return tries.wait_s(error, deadline.remaining_s)


def _verdict(failures: Sequence[GatewayError]) -> GatewayError:
    """What the client is told after all targets failed: the last one that an upstream said, with the smallest wait."""
    said = [error for error in failures if isinstance(error, UpstreamError) and error.upstream_status is not None]
    error = (said or failures)[-1]
    waits = [failure.retry_after_s for failure in failures if failure.retry_after_s is not None]
    if waits:
        error.retry_after_s = min(waits)
    return error
