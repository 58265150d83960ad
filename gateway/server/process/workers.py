"""Several processes on one port: starts them, starts again what dies, and passes signals on. Serves nothing itself."""

import os
import select
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.server.process.service_manager import tell_ready
from gateway.server.process.siblings import Siblings
from gateway.server.process.stderr import say

__all__ = ["CANNOT_START", "Workers"]

CANNOT_START = 78
"""The exit status of a process that cannot work with what run.yaml says."""

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_STEADY_S = 60.0
"""A process that lived so long is started again without a pause."""

Serve = Callable[[Siblings, Callable[[], None]], int]


class _Worker:
    """The process that has this number now. `pid` None: it is to be started at `due`, of the monotonic clock."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid: int | None = None
        self.began = 0.0
        self.due = 0.0
        self.is_first = True
        """No process had this number before."""
        self.pause_s = _FIRST_PAUSE_S


class Workers:
    """`count` processes that serve, and one that runs `engine`; None: there is none. `ready` is told when all do, and
    `stopping` when they are to end.

    For the main thread, before any loop runs there.
    """

    def __init__(
        self,
        count: int,
        ready: Callable[[], None],
        engine: "Serve | None" = None,
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._begin_stop = stopping
        self._ready = ready
        self._workers = [_Worker(number) for number in range(count + (engine is not None))]
        self._count = count
        self._stopping = False
        self._signals: list[int] = []
        self._ready_count = 0

    def run(self, serve: Serve) -> int:
        """Returns when all have ended: 0, or 1 where one could not even start for the first time."""
        wake_read, wake_write = os.pipe()
        ready_read, ready_write = os.pipe()
        life_read, life_write = os.pipe()  # nobody writes: it ends with this process
        for end in (wake_read, wake_write, ready_read):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, self._heard)
        unneeded = (wake_read, wake_write, ready_read, life_write)
        status = 0
        with tempfile.TemporaryDirectory(prefix="gateway-") as folder:
            while True:
                for worker in self._workers:
                    if worker.pid is None and not self._stopping and time.monotonic() >= worker.due:
                        self._start(worker, serve, Path(folder), (ready_write, life_read), unneeded)
                if self._stopping and all(worker.pid is None for worker in self._workers):
                    return status
                readable, _, _ = select.select([wake_read, ready_read], [], [], self._wait_s())
                for end in readable:
                    told = os.read(end, 4096)
                    if end == ready_read:
                        self._are_ready(len(told))
                self._pass_on()
                if self._reap():
                    status = 1

    def _heard(self, number: int, frame: object) -> None:
        self._signals.append(number)

    def _start(
        self, worker: _Worker, serve: Serve, folder: Path, ends: tuple[int, int], unneeded: tuple[int, ...]
    ) -> None:
        pid = os.fork()
        if pid:
            worker.pid, worker.began = pid, time.monotonic()
            return
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells all; the parent passes it on, once
            for end in unneeded:
                os.close(end)
            siblings = Siblings(folder, worker.number, self._count, ends[1], has_engine=self._engine is not None)
            run = serve if worker.number < self._count or self._engine is None else self._engine
            status = run(siblings, lambda: _tell(ends[0]))
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)  # what the parent has registered to do at its exit is the parent's

    def _wait_s(self) -> float:
        now = time.monotonic()
        due = [worker.due - now for worker in self._workers if worker.pid is None and not self._stopping]
        return max(0.0, min(due, default=3600.0))

    def _are_ready(self, count: int) -> None:
        before, self._ready_count = self._ready_count, self._ready_count + count
        if before < len(self._workers) <= self._ready_count:
            self._ready()
            tell_ready()

    def _pass_on(self) -> None:
        heard, self._signals = self._signals, []
        for number in heard:
            if number == signal.SIGCHLD:
                continue
            if number == signal.SIGHUP:
                _send(self._workers, signal.SIGHUP)
            else:
                self._begin_stop()
                _send(self._workers if self._stopping else self._workers[: self._count], signal.SIGTERM)
                self._stopping = True

    def _reap(self) -> bool:
        """Notes who has ended. Tells whether one could not start, which ends them all."""
        failed = False
        for worker in self._workers:
            if worker.pid is None:
                continue
            ended, status = os.waitpid(worker.pid, os.WNOHANG)
            if not ended:
                continue
            could_not_start = worker.is_first and os.waitstatus_to_exitcode(status) == CANNOT_START
            worker.is_first = False
            lived_s = time.monotonic() - worker.began
            worker.pid = None
            if self._stopping:
                continue
            if could_not_start or self._ready_count < len(self._workers):
                failed = self._stopping = True
                continue
            worker.pause_s = _FIRST_PAUSE_S if lived_s > _STEADY_S else min(worker.pause_s * 2, _LONGEST_PAUSE_S)
            worker.due = time.monotonic() + (0 if lived_s > _STEADY_S else worker.pause_s)
            who = f"worker {worker.number}" if worker.number < self._count else "the local models' process"
            say(f"{who} has ended, and is started again")
        if failed or (self._stopping and all(worker.pid is None for worker in self._workers[: self._count])):
            _send(self._workers, signal.SIGTERM)  # the engine goes last: running requests still need it
        return failed


def _send(workers: Sequence[_Worker], number: signal.Signals) -> None:
    for worker in workers:
        if worker.pid is not None:
            os.kill(worker.pid, number)


def _tell(end: int) -> None:
    os.write(end, b"R")
