"""Asks providers whether they are there: each once at the start, and those behind an open breaker until they are back,
so that no client's request has to find out.

A probe is a provider's own cheap question (`providers.abilities.Prober`) and never spends a token. It comes shortly
before the breaker would let a request through: while it fails, the breaker stays open.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from adapters.canonical.errors import GatewayError, UpstreamTimeout, UpstreamUnreachable
from gateway.routing.breaker import BreakerState
from gateway.routing.health import TargetHealth, tells_against
from providers.abilities import Prober
from providers.base import Provider

__all__ = ["PROBE_S", "Probes"]

PROBE_S = 5.0
"""What a probe may take."""
_AHEAD_S = 1.0


class Probes:
    """At most one task for each target. `clock` is that of the breakers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tasks: dict[TargetHealth, asyncio.Task[None]] = {}
        self._looks: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        """How many targets are watched."""
        return len(self._tasks)

    def watch(self, record: TargetHealth) -> None:
        """A breaker opened. Without the ability the next request after the pause is the probe."""
        if isinstance(record.target.provider, Prober) and record not in self._tasks:
            task = self._tasks[record] = asyncio.create_task(self._run(record, record.target.provider))
            task.add_done_callback(lambda _: self._tasks.pop(record, None))

    def look(self, records: Iterable[TargetHealth], gone: Callable[[str], None]) -> None:
        """Asks the provider of each of these targets, in the background. The breakers of one that cannot be reached
        open, and `gone` is told its name."""
        by_provider: dict[Provider, list[TargetHealth]] = {}
        for record in records:
            by_provider.setdefault(record.target.provider, []).append(record)
        for provider, targets in by_provider.items():
            if isinstance(provider, Prober):
                task = asyncio.create_task(self._look(provider, targets, partial(gone, provider.name)))
                self._looks.add(task)
                task.add_done_callback(self._looks.discard)

    async def aclose(self) -> None:
        tasks = [*self._tasks.values(), *self._looks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, provider: Prober, records: Sequence[TargetHealth], gone: Callable[[], None]) -> None:
        try:
            async with asyncio.timeout(PROBE_S):
                await provider.probe()
            return
        except (TimeoutError, UpstreamUnreachable, UpstreamTimeout):
            gone()
        except GatewayError:
            return  # it is there, and says something else
        for record in records:
            record.breaker.trip(self._clock())
            self.watch(record)

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
