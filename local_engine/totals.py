"""Counts of what an engine has done since it started, and rates of late. Knows no requests."""

import math
from collections.abc import Callable

__all__ = ["Totals"]

_RATE_WINDOW_S = 10.0
_MAX_RETRY_S = 60.0


class Totals:
    """Written by the engine's thread, read by any; two fields may be a step apart. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.prompt_tokens = self.prefix_hits = self.generated_tokens = 0
        self.finished = self.failed = self.aborted = 0
        self.accepted_drafts = self.rejected_drafts = 0
        self._rate, self._rate_at_s = 0.0, clock()
        self._last_end_s, self._end_interval_s = self._rate_at_s, 1.0
        self._known_tokens = self._known_ends = 0

    def step_done(self) -> None:
        """Takes what was counted since the last step into the rates."""
        now = self._clock()
        faded = self._rate * math.exp((self._rate_at_s - now) / _RATE_WINDOW_S)
        self._rate = faded + (self.generated_tokens - self._known_tokens) / _RATE_WINDOW_S
        self._rate_at_s = now
        for _ in range(self.finished - self._known_ends):
            # A moving average over about the last ten ends.
            self._end_interval_s += 0.1 * (now - self._last_end_s - self._end_interval_s)
            self._last_end_s = now
        self._known_tokens, self._known_ends = self.generated_tokens, self.finished

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens, each step counting for less the longer ago it was; a mean over about ten seconds."""
        return self._rate * math.exp((self._rate_at_s - self._clock()) / _RATE_WINDOW_S)

    @property
    def retry_after_s(self) -> float:
        """How long until one of the unfinished requests ends, judging by the last ones: 1 to 60 s."""
        return min(max(self._end_interval_s, 1.0), _MAX_RETRY_S)
