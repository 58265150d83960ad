"""How much memory an action holds at once, counted by the allocators of torch and Python."""

import tracemalloc
from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

__all__ = ["peak_bytes"]


def peak_bytes(action: Callable[[], object]) -> int:
    """The most that torch's allocator held above its start, plus the most that Python's did (numpy's arrays included).

    Memory of mapped files is no allocation and not counted.
    """
    tracemalloc.start()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            kept = action()
        python_peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    del kept
    assert recorded.profiler is not None
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak + python_peak
