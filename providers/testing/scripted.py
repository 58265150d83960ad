"""A provider that plays a script: for tests of whatever stands above providers.

    provider = ScriptedProvider("fake", [[Started(id="1")], [TextDelta(0, 0, "hi")], [ChoiceFinished(0, STOP)]])

A step is a batch of events, an error to raise, or an asyncio.Event to wait for. A script is steps, or a function that
gives the steps for a request. Nothing here sleeps.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TypeAlias

from adapters.canonical.errors import UpstreamError
from adapters.canonical.request import EXPRESSIBLE_FIELDS, Request
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION
from providers.base import Batch, Capabilities, ModelEntry, Readiness, ReadinessState

__all__ = ["Script", "ScriptedProvider", "Step"]

Step: TypeAlias = Batch | Exception | asyncio.Event
Script: TypeAlias = Sequence[Step] | Callable[[Request], Iterable[Step]]

_READY = Readiness(ReadinessState.READY)


class ScriptedProvider:
    """Plays its script for every request, or several in turn (the last one repeats).

    `requests` are those seen. `open_streams` counts streams that began and are not over; `waiting` is set while a
    stream waits for an event of its script, so that a test can act at that point. `models()` raises `models_error`.
    """

    def __init__(
        self,
        name: str,
        *scripts: Script,
        models: Sequence[ModelEntry] = (),
        capabilities: Capabilities | None = None,
        readiness: Readiness = _READY,
        models_error: Exception | None = None,
    ) -> None:
        self._name = name
        self._scripts = list(scripts)
        self._models = models
        self._models_error = models_error
        self._capabilities = capabilities or Capabilities(
            fields=EXPRESSIBLE_FIELDS, prompts=True, native_choices=True, tool_kinds=frozenset((FUNCTION, CUSTOM))
        )
        self._readiness = readiness
        self._played = 0
        self._closing = asyncio.Event()
        self.requests: list[Request] = []
        self.open_streams = 0
        self.starts = 0
        self.waiting = asyncio.Event()

    @property
    def name(self) -> str:
        return self._name

    @property
    def closed(self) -> bool:
        return self._closing.is_set()

    def play(self, *scripts: Script) -> None:
        """From now on, these are the scripts."""
        self._scripts = list(scripts)
        self._played = 0

    async def start(self) -> None:
        self.starts += 1

    def capabilities(self, model: str) -> Capabilities:
        return self._capabilities

    def readiness(self, model: str) -> Readiness:
        return self._readiness

    async def models(self) -> Sequence[ModelEntry]:
        if self._models_error is not None:
            raise self._models_error
        return self._models

    async def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        self.requests.append(request)
        script = self._scripts[min(self._played, len(self._scripts) - 1)]
        self._played += 1
        self.open_streams += 1
        try:
            for step in script(request) if callable(script) else script:
                if self.closed:
                    raise UpstreamError(f"{self._name}: the provider is closed")
                if isinstance(step, asyncio.Event):
                    await self._wait(step)
                elif isinstance(step, Exception):
                    raise step
                else:
                    yield list(step)
        finally:
            self.open_streams -= 1

    async def _wait(self, event: asyncio.Event) -> None:
        """Until the event is set, or the provider is closed."""
        self.waiting.set()
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._closing.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            self.waiting.clear()
        if self.closed:
            raise UpstreamError(f"{self._name}: the provider is closed")

    async def aclose(self) -> None:
        self._closing.set()
