"""Asks providers behind an open breaker whether they are back, so that no client's request has to find out.

A probe is a provider's own cheap question (`providers.abilities.Prober`) and never spends a token. It comes shortly
before the breaker would let a request through: while it fails, the breaker stays open.
"""

import asyncio
from collections.abc import Callable

from adapters.canonical.errors import GatewayError
from gateway.routing.breaker import BreakerState
from gateway.routing.health import TargetHealth, tells_against
from providers.abilities import Prober

__all__ = ["PROBE_S", "Probes"]

PROBE_S = 5.0
"""What a probe may take."""
_AHEAD_S = 1.0


class Probes:
    """At most one task for each target. `clock` is that of the breakers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tasks: dict[TargetHealth, asyncio.Task[None]] = {}

    @property
    def count(self) -> int:
        """How many targets are watched."""
        return len(self._tasks)

    def watch(self, record: TargetHealth) -> None:
        """A breaker opened. Without the ability the next request after the pause is the probe."""
        if isinstance(record.target.provider, Prober) and record not in self._tasks:
            task = self._tasks[record] = asyncio.create_task(self._run(record, record.target.provider))
            task.add_done_callback(lambda _: self._tasks.pop(record, None))

    async def aclose(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, record: TargetHealth, provider: Prober) -> None:
        breaker = record.breaker
        while breaker.state(self._clock()) is BreakerState.OPEN:
            left_s = breaker.left_s(self._clock())
            await asyncio.sleep(left_s - min(_AHEAD_S, left_s / 4))
            if breaker.state(self._clock()) is BreakerState.CLOSED or await self._is_back(provider):
                return
            breaker.stay_open(self._clock())

    async def _is_back(self, provider: Prober) -> bool:
        try:
            async with asyncio.timeout(PROBE_S):
                await provider.probe()
        except TimeoutError:
            return False
        except GatewayError as error:
            return not tells_against(error)
        return True
