"""Copies of answered requests to a target whose answers go nowhere.

A copy begins after the client got its first output, never holds up or fails anything, and runs in a task of its own.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from adapters.canonical.errors import GatewayError, UpstreamTimeout
from adapters.canonical.events import is_output
from adapters.canonical.request import Request
from gateway.routing.attempt import AttemptKind, Outcome
from gateway.routing.attempts import Walking
from gateway.routing.fitting import Spelling
from gateway.routing.guard import FinishGuard
from gateway.routing.progress import Progress
from gateway.routing.requirements import fit_target
from gateway.routing.route import Shadow, Target

__all__ = ["MAX_SHADOWS", "Shadows"]

MAX_SHADOWS = 64
"""Copies that run at once; beyond them none is made."""


class Shadows:
    """`fault` is told of an exception that is no GatewayError: this is the outermost edge of a copy."""

    def __init__(self, walking: Walking, fault: Callable[[BaseException], None]) -> None:
        self._walking = walking
        self._fault = fault
        self._running: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        """How many run."""
        return len(self._running)

    def copy(self, shadow: Shadow, request: Request, spell: Spelling, progress: Progress) -> None:
        """Sends the request to the shadow as well, if it is this one's turn. Raises nothing."""
        if self._walking.random() >= shadow.share:
            return
        target = shadow.target
        if len(self._running) >= MAX_SHADOWS:
            progress.passed_over.append((target, f"{MAX_SHADOWS} shadows are running"))
            return
        try:
            fitted = fit_target(request, target, spell, completions_as_chat=self._walking.rules.completions_as_chat)
        except GatewayError as error:
            progress.passed_over.append((target, error.message))
            return
        task = asyncio.create_task(self._run(target, fitted.request, progress))
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def aclose(self) -> None:
        """Cancels what runs."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fault(error)

    async def _run(self, target: Target, request: Request, progress: Progress) -> None:
        walking = self._walking
        total_s = walking.rules.total_s
        attempt = walking.begin(progress, target, AttemptKind.SHADOW)
        attempt.guard = guard = FinishGuard(request.num_choices)
        try:
            async with asyncio.timeout(total_s), aclosing(target.provider.stream(request)) as batches:
                async for batch in batches:
                    guard.see(batch)
                    if attempt.first_output is None and any(map(is_output, batch)):
                        walking.answered(attempt)
            guard.close()
            walking.end(attempt, Outcome.ANSWERED)
        except TimeoutError:
            late = UpstreamTimeout(f"the answer was not complete within {total_s:g} s")
            walking.end(attempt, Outcome.FAILED, late)
        except GatewayError as error:
            walking.end(attempt, Outcome.FAILED, error)
        finally:
            walking.end(attempt, Outcome.CANCELLED)
