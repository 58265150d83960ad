"""Rank 0's side of the processes that share a model: tells the others what to do, and knows when one is gone."""

import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from local_engine.config import EngineConfig
from local_engine.errors import EngineError, RankLost
from local_engine.parallel.messages import Kind, config_json
from local_engine.parallel.process_ranks import connect
from local_engine.parallel.processes import Report, WorkerProcesses

__all__ = ["RankGroup"]


class RankGroup:
    """`size` ranks on the devices of one kind, this process being the first. Blocks until all have met.

    ordered: see `ProcessRanks`. threads: of a worker on the CPU. Raises RankLost. The workers end with `close`, with
    this object, or with this process.
    """

    def __init__(self, size: int, *, device: str, threads: int | None = None, ordered: bool = True) -> None:
        folder = Path(tempfile.mkdtemp(prefix="local-engine-ranks-"))  # nobody else's to read or write
        kind = torch.device(device).type
        try:
            common = {"size": size, "meeting": str(folder / "meeting"), "threads": threads, "ordered": ordered}
            self.processes = WorkerProcesses(
                [
                    {**common, "rank": rank, "device": kind if kind == "cpu" else f"{kind}:{rank}"}
                    for rank in range(1, size)
                ]
            )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._end = weakref.finalize(self, _end, self.processes, folder)
        try:
            self.processes.meet()
            self._control, self.ranks = connect(
                folder / "meeting", rank=0, size=size, device=torch.device(device), ordered=ordered
            )
        except RuntimeError as error:
            self.processes.lose(f"the ranks did not meet: {error}".splitlines()[0])
            self.close()
            raise RankLost(self.processes.reason()) from error
        # Messages have one order for all, and reports belong to the message that was told last.
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        if kind == "cuda":
            # Kernels that wait for a rank that is gone would wait for ever.
            self.processes.on_loss(self.ranks.abort)

    def tell(self, kind: Kind, payload: bytes = b"") -> None:
        """Any thread may call it. Raises RankLost."""
        with self.guarded(), self._sending:
            self._control.send(kind, payload)

    def ask(self, kind: Kind, payload: bytes = b"") -> list[Report]:
        """Tells it and waits for the reports. Raises what a rank reports."""
        with self._asking:
            self.tell(kind, payload)
            return self.processes.reports()

    @contextmanager
    def telling(self, kind: Kind, config: EngineConfig, **more: object) -> Iterator[list[Report]]:
        """While this rank does the same inside the block; the reports are there behind it.

        Raises what this rank raises, and else what another reports.
        """
        with self._asking:
            found: list[Report] = []
            self.tell(kind, config_json(config, **more))
            try:
                yield found
            except Exception as error:
                if kind is Kind.LOAD:
                    self._drop_reports()  # they are of the same file, and this rank's own error is told
                else:  # the others may wait for this rank
                    self.processes.lose(f"rank 0 of {self.ranks.size} failed: {error}".splitlines()[0])
                raise
            found += self.processes.reports()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """What all ranks do together: an error on one of them is the end of all. Raises RankLost."""
        self.check()
        try:
            yield
            self.check()
        except RankLost:
            raise
        except Exception as error:
            reason = f"rank 0 of {self.ranks.size} failed: {type(error).__name__}: {error}".splitlines()[0]
            if isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError):
                # Most often what is left of a connection to a rank that is gone.
                reason = self.processes.reason(reason)
            self.processes.lose(reason)
            raise RankLost(self.processes.reason(reason)) from error

    def check(self) -> None:
        """Raises RankLost where one is gone: what this rank computed meanwhile means nothing."""
        if self.processes.lost is not None:
            raise RankLost(self.processes.lost)

    @property
    def is_closed(self) -> bool:
        return not self._end.alive

    def close(self) -> None:
        """Ends the workers. May be called again."""
        self._end()

    def _drop_reports(self) -> None:
        with suppress(EngineError):
            self.processes.reports()


def _end(processes: WorkerProcesses, folder: Path) -> None:
    processes.close()
    shutil.rmtree(folder, ignore_errors=True)
