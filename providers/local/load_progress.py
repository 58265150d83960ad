"""How a person sees a model being fetched and loaded: a bar on a terminal, elsewhere a line on stderr now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["LoadProgress", "shown_progress"]

LoadProgress = Callable[[str, int, int | None], None]
"""Called from the loading thread with what is being done, bytes done, and bytes in all (None: unknown)."""

_LINE_EVERY_S = 5.0


@contextmanager
def shown_progress(name: str, *, clock: Callable[[], float] = time.monotonic) -> Iterator[LoadProgress]:
    """Shows what is reported about the model `name`, until the block is left. `clock` gives seconds."""
    if not sys.stderr.isatty():
        yield _lines(name, clock)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, TaskID] = {}

        def advance(stage: str, done_bytes: int, total_bytes: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(f"{name}: {stage}", total=total_bytes)
            bar.update(tasks[stage], completed=done_bytes, total=total_bytes)

        yield advance


def _lines(name: str, clock: Callable[[], float]) -> LoadProgress:
    """A line for every few seconds that a stage lasts; what is quick says nothing."""
    last: dict[str, float] = {}

    def advance(stage: str, done_bytes: int, total_bytes: int | None) -> None:
        now = clock()
        if now - last.setdefault(stage, now) >= _LINE_EVERY_S:
            last[stage] = now
            of = f" of {total_bytes / 2**20:.0f}" if total_bytes else ""
            print(f"{name}: {stage} {done_bytes / 2**20:.0f}{of} MiB", file=sys.stderr, flush=True)

    return advance
