"""One target's stream of events, from its beginning to its first real output, and which of two is faster.

Up to the first output a call may be given up for another one (law 13); what comes after it is the router's.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import ChoiceFinished, is_output
from adapters.canonical.stop_reason import StopReason
from gateway.routing.attempt import Attempt
from gateway.routing.attempts import Attempts
from gateway.routing.guard import FinishGuard
from providers.base import Batch

__all__ = ["Call", "fastest", "is_filtered"]


class Call:
    """`batches` are the provider's; whoever makes a call closes them. `dropped` was left out of the request."""

    __slots__ = ("attempt", "batches", "dropped", "failure", "first", "guard")

    def __init__(
        self, attempt: Attempt, batches: AsyncGenerator[Batch, None], guard: FinishGuard, dropped: tuple[str, ...]
    ) -> None:
        self.attempt = attempt
        self.dropped = dropped
        self.batches = batches
        self.guard = attempt.guard = guard
        self.first: Batch | None = None
        """The batch that brings the first output, with all that came before it; None: it has not come."""
        self.failure: GatewayError | None = None

    async def open(self) -> None:
        """Waits for the first output, or for the failure in its place."""
        held: Batch = []
        try:
            async for batch in self.batches:
                self.guard.see(batch)
                held += batch
                if any(map(is_output, batch)):
                    self.first = held
                    return
            self.guard.close()  # nothing is whole without an output: raises
        except GatewayError as error:
            self.failure = error


async def fastest(first: Call, hedge_s: float, another: Callable[[], Call | None], attempts: Attempts) -> Call:
    """The call whose output came first; where both failed, the one that failed last, its end not yet told.

    `another` begins a second call once the first one is silent for `hedge_s`; None: there is nobody to ask. The call
    that loses is cancelled and closed.
    """
    racing = {asyncio.ensure_future(first.open()): first}
    limit_s: float | None = hedge_s
    try:
        while True:
            done, _ = await asyncio.wait(racing, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                limit_s = None
                second = another()
                if second is not None:
                    racing[asyncio.ensure_future(second.open())] = second
            for task in done:
                task.result()
                call = racing.pop(task)
                if call.failure is None or not racing:
                    return call
                attempts.gave_up(call.attempt, call.failure)
                await call.batches.aclose()
    finally:
        for task in racing:
            task.cancel()
        await asyncio.gather(*racing, return_exceptions=True)
        for call in racing.values():
            if call.failure is None:
                attempts.cancelled(call.attempt)
            else:
                attempts.gave_up(call.attempt, call.failure)
            await call.batches.aclose()


def is_filtered(batch: Batch) -> bool:
    """Whether an answer's first output is that a filter took it."""
    outputs = [event for event in batch if is_output(event)]
    return all(type(event) is ChoiceFinished and event.reason is StopReason.CONTENT_FILTER for event in outputs)
