"""How a person sees a model being fetched and loaded: a bar on a terminal, elsewhere a line on stderr now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["RECORDING", "LoadProgress", "WeightsRead", "shown_progress"]

LoadProgress = Callable[[str, int, int | None], None]
"""Called from the loading thread with what is being done, how much is done, and how much in all (None: unknown).

In bytes, save for RECORDING.
"""

RECORDING: Final = "recording steps"
"""A GPU's decode steps are recorded: counted, one a batch size."""

_LINE_EVERY_S = 5.0


class WeightsRead:
    """Tells how far the weights of one model are read. `num_bytes`: what they take in its files."""

    def __init__(self, progress: LoadProgress) -> None:
        self._progress = progress
        self.num_bytes = 0

    def __call__(self, done: int, total: int) -> None:
        self.num_bytes = total
        self._progress("loading", done, total)


@contextmanager
def shown_progress(name: str, *, clock: Callable[[], float] = time.monotonic) -> Iterator[LoadProgress]:
    """Shows what is reported about the model `name`, until the block is left. `clock` gives seconds."""
    if not sys.stderr.isatty():
        began = clock()
        yield _lines(name, clock)
        if (lasted_s := clock() - began) >= _LINE_EVERY_S:
            print(f"{name}: done after {lasted_s:.0f} s", file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[amount]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, TaskID] = {}

        def advance(stage: str, done: int, total: int | None) -> None:
            amount = _amount(stage, done, total)
            if stage not in tasks:
                tasks[stage] = bar.add_task(f"{name}: {stage}", total=total, amount=amount)
            bar.update(tasks[stage], completed=done, total=total, amount=amount)

        yield advance


def _lines(name: str, clock: Callable[[], float]) -> LoadProgress:
    """A line for every few seconds that a stage lasts; what is quick says nothing."""
    last: dict[str, float] = {}

    def advance(stage: str, done: int, total: int | None) -> None:
        now = clock()
        if now - last.setdefault(stage, now) >= _LINE_EVERY_S:
            last[stage] = now
            print(f"{name}: {stage} {_amount(stage, done, total)}", file=sys.stderr, flush=True)

    return advance


def _amount(stage: str, done: int, total: int | None) -> str:
    scale, unit = (1, "") if stage == RECORDING else (2**20, " MiB")
    of = f" of {total / scale:.0f}" if total else ""
    return f"{done / scale:.0f}{of}{unit}"
