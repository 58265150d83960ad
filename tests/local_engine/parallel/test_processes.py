"""How the processes of a model end: none outlives the one that started it, and the end of one is the end of all."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from local_engine.async_engine import AsyncEngine
from local_engine.config import EngineConfig
from local_engine.errors import EngineClosed, GenerationFailed
from local_engine.generation import StepOutput
from local_engine.parallel.load import load_parallel
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import request, small_config
from tests.local_engine.parallel.conftest import PairOf

LONG = request([1, 2, 3], SamplingParams(temperature=0.0, max_tokens=50, ignore_eos=True))

# Starts a worker as an engine does, says its process id, and waits to be killed.
PARENT = """
import sys
from local_engine.parallel.processes import WorkerProcesses
common = {"size": 2, "device": "cpu", "threads": 1, "ordered": True, "meeting": sys.argv[1]}
workers = WorkerProcesses([{**common, "rank": 1}])
workers.meet()
print(*workers.pids, flush=True)
sys.stdin.read()
"""


async def test_a_process_that_dies_ends_the_engine_with_the_reason(
    living_pair: PairOf, tiny_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    group = living_pair()
    config = small_config(tensor_parallel=2)
    engine = AsyncEngine(load_parallel(tiny_folder, config, group=group), config)
    (worker,) = group.processes.pids
    async with aclosing(engine.generate(LONG)) as outputs:
        await anext(outputs)
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(GenerationFailed, match="rank 1 of 2 was ended by signal 9"):
            await exhausted(outputs)
    async with aclosing(engine.generate(LONG)) as outputs:
        with pytest.raises(EngineClosed, match="rank 1 of 2 was ended by signal 9"):
            await anext(outputs)
    await engine.aclose()
    assert "the engine stopped" in caplog.text
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_a_worker_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "meeting")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        end = os.pidfd_open(worker)
        parent.kill()
    try:
        # The descriptor of a process that has ended can be read from.
        assert select.select([end], [], [], 20)[0]
    finally:
        os.close(end)


def test_closing_the_engine_ends_the_processes(tiny_folder: Path) -> None:
    before = children()
    config = small_config(tensor_parallel=2)
    executor = load_parallel(tiny_folder, EngineConfig(tensor_parallel=2, threads=1)).open_executor(config)
    assert len(children() - before) == 1
    executor.close()
    assert children() == before


async def exhausted(outputs: AsyncGenerator[StepOutput, None]) -> None:
    async for _ in outputs:
        pass


def children() -> set[int]:
    """The processes that this one has started."""
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
