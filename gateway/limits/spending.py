"""What scopes have spent, as the database knows it: asked once for all who want it at a time, and not for long."""

import asyncio
from collections.abc import Awaitable, Callable

from adapters.canonical.errors import NotReady
from gateway.limits.scope import Scope

__all__ = ["SpentBefore", "Spending"]

_WAIT_S = 5.0

SpentBefore = Callable[[Scope, int], Awaitable[int]]
"""What a scope has spent since a time in Unix seconds, in billionths of a dollar. Raises NotReady."""


class Spending:
    """Satisfies `SpentBefore`. A question that was put goes on when nobody waits for it any more."""

    def __init__(self, spent_before: SpentBefore, wait_s: float = _WAIT_S) -> None:
        self._spent_before = spent_before
        self._wait_s = wait_s
        self._asking: dict[tuple[str, int], asyncio.Task[int]] = {}

    async def __call__(self, scope: Scope, since: int) -> int:
        """Raises NotReady, also where the database is silent."""
        asked = (scope.name, since)
        task = self._asking.get(asked)
        if task is None:
            task = self._asking[asked] = asyncio.ensure_future(self._spent_before(scope, since))
            task.add_done_callback(lambda done: self._answered(asked, done))
        try:
            async with asyncio.timeout(self._wait_s):
                return await asyncio.shield(task)
        except TimeoutError as error:
            raise NotReady("the gateway's database does not answer", code="storage_unavailable") from error

    def _answered(self, asked: tuple[str, int], task: "asyncio.Task[int]") -> None:
        del self._asking[asked]
        if not task.cancelled():
            task.exception()  # whoever waits for it gets it as well
