"""How a person sees a model being fetched and loaded: a bar on a terminal, a line now and then in a log."""

import logging
import sys
import time
from typing import TYPE_CHECKING

from providers.local.local_model import LoadProgress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

__all__ = ["load_progress"]

_logger = logging.getLogger(__name__)
_LINE_EVERY_S = 5.0


def load_progress(name: str) -> LoadProgress:
    """Reports of the model `name`; called from one thread."""
    return _Bar(name) if sys.stderr.isatty() else _Lines(name)


class _Lines:
    def __init__(self, name: str) -> None:
        self._name = name
        self._stage = ""
        self._last = 0.0

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if stage == self._stage and now - self._last < _LINE_EVERY_S:
            return
        self._stage, self._last = stage, now
        of = f" of {total / 1e6:.0f}" if total else ""
        _logger.info("%s %s: %.0f%s MB", stage, self._name, done / 1e6, of)


class _Bar:
    """One bar a stage; rich is imported with the first report."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stage = ""
        self._bars: Bars | None = None

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        if stage != self._stage or self._bars is None:
            if self._bars is not None:
                self._bars.stop()
            self._stage = stage
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                console=Console(stderr=True),
            )
            self._bars.add_task(f"{stage} {self._name}", total=total)
            self._bars.start()
        self._bars.update(self._bars.task_ids[0], completed=done, total=total)
        if total is not None and done >= total:
            self._bars.stop()
            self._bars = None
