"""What a request did in the engine, as it is told to traces: it waited, its prompt was computed, its answer was."""

import time

from local_engine.generation import StepOutput
from providers.trace_context import PHASES, Phase

__all__ = ["EnginePhases"]


class EnginePhases:
    """Of one request, from now on. The engine's clock is `time.monotonic`."""

    def __init__(self) -> None:
        self._record = PHASES.get()
        self._since = time.monotonic()
        self._name: Phase = "queue"

    def saw(self, output: StepOutput) -> None:
        """The engine's first output came."""
        if self._record is None or self._name == "decode":
            return
        if output.began_s is not None:
            self._next("prefill", max(self._since, output.began_s))
        self._next("decode", time.monotonic())

    def close(self) -> None:
        """The answer is over, in whatever way."""
        self._next(self._name, time.monotonic())
        self._record = None

    def _next(self, name: Phase, at: float) -> None:
        if self._record is not None:
            self._record(self._name, self._since, at)
        self._name, self._since = name, at
