"""The worker processes of a model: started, listened to, and ended. Knows no tensors and no messages.

A worker ends when its standard input is closed, so none outlives the process that started it, killed or not.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from local_engine.errors import RankLost
from local_engine.parallel.messages import reported_error

__all__ = ["WorkerProcesses"]

# How long a worker may take to leave once its input is closed.
_LEAVE_S = 5.0
# How long it may take to import torch.
_START_S = 120.0
# What is told of a rank's end comes a moment after the others have noticed it.
_REASON_S = 3.0

Report = Mapping[str, Any]


class WorkerProcesses:
    """Ranks 1 and up; `introductions` is the first line of input of each. Any thread may call it.

    Raises RankLost where one does not start.
    """

    def __init__(self, introductions: Sequence[Mapping[str, object]]) -> None:
        self._lock = threading.Lock()
        self._lost: str | None = None
        self._told = threading.Event()
        self._closed = False
        self._on_loss: Callable[[], None] = lambda: None
        self._size = len(introductions) + 1
        self._reports: list[queue.SimpleQueue[Report | None]] = [queue.SimpleQueue() for _ in introductions]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for introduction in introductions:
                self._processes.append(self._start(introduction, environment))
            for index, _ in enumerate(introductions):
                self.report_of(index, timeout_s=_START_S)
        except BaseException:
            self.close()
            raise

    def meet(self) -> None:
        """Tells all that the others are ready to meet. Raises RankLost."""
        for process in self._processes:
            assert process.stdin is not None
            try:
                process.stdin.write(b"\n")
                process.stdin.flush()
            except BrokenPipeError as error:
                raise RankLost(self.reason()) from error

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self._processes)

    @property
    def lost(self) -> str | None:
        """Why the ranks cannot go on, in one line; None while all are there."""
        return self._lost

    def on_loss(self, call: Callable[[], None]) -> None:
        """From now on called, once and from another thread, when a worker ends by itself."""
        self._on_loss = call

    def report_of(self, index: int, *, timeout_s: float | None = None) -> Report:
        """The next report of the worker of rank index + 1. Raises what it reports, or RankLost."""
        try:
            report = self._reports[index].get(timeout=timeout_s)
        except queue.Empty:
            self.lose(f"rank {index + 1} of {self._size} did not start within {timeout_s:.0f} s")
            report = None
        if report is None:
            raise RankLost(self.reason())
        if "error" in report:
            raise reported_error(report["error"])
        return report

    def reports(self) -> list[Report]:
        """The next report of each. All are taken, whatever one of them says; then the first error is raised."""
        found: list[Report] = []
        errors: list[Exception] = []
        for index in range(len(self._processes)):
            try:
                found.append(self.report_of(index))
            except Exception as error:  # raised below
                errors.append(error)
        if errors:
            raise errors[0]
        return found

    def reason(self, default: str = "it was closed") -> str:
        """Why the ranks cannot go on. Waits a moment for who knows."""
        self._told.wait(_REASON_S)
        return self._lost or default

    def lose(self, reason: str) -> None:
        """Ends the others, since one alone computes nothing. Only the first reason counts."""
        with self._lock:
            if self._closed or self._lost is not None:
                return
            self._lost = reason
        self._told.set()
        for process in self._processes:
            process.kill()
        self._on_loss()

    def close(self) -> None:
        """Ends all and waits for it. May be called again."""
        with self._lock:
            self._closed = True
            self._told.set()
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(_LEAVE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, introduction: Mapping[str, object], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "local_engine.parallel.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(introduction).encode() + b"\n")
        process.stdin.flush()
        index = len(self._processes)
        threading.Thread(
            target=self._listen,
            args=(index, process, process.stdout),
            name=f"local-engine-rank-{index + 1}",
            daemon=True,
        ).start()
        return process

    def _listen(self, index: int, process: "subprocess.Popen[bytes]", output: IO[bytes]) -> None:
        told = ""
        with output:
            for line in output:
                report = json.loads(line)
                if "error" in report:
                    told = report["error"]["text"]
                self._reports[index].put(report)
        status = process.wait()
        ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        self.lose(f"rank {index + 1} of {self._size} {ended}{f': {told}' if told else ''}")
        self._reports[index].put(None)
