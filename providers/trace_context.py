"""The W3C trace that the present task works for: what every call of an upstream carries on (`traceparent`).

Set by whoever serves the request, for each call anew; read by the HTTP client and by the local engine's provider. A
context variable, since a trace goes with everything that a task does, and with the tasks that it starts.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Literal

__all__ = ["PHASES", "TRACE", "Phase"]

Phase = Literal["queue", "prefill", "decode"]

TRACE: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("TRACE", default=())
"""Headers by name: `traceparent`, and `tracestate` where there is one. Empty: there is no trace."""
PHASES: ContextVar[Callable[[Phase, float, float], None] | None] = ContextVar("PHASES", default=None)
"""Takes what an engine of ours did for the present call: which phase, and its begin and end in seconds of
`time.monotonic`. None: nobody wants to know."""
