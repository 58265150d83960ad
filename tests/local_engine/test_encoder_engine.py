"""The encoder's thread: turns, bounds, faults and the end."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.encoder_engine import EncoderEngine
from local_engine.encoding import EncoderInfo, EncoderInput
from local_engine.errors import ContextOverflow, EngineClosed, GenerationFailed, InvalidInput, QueueFull

ROOT = Path(__file__).parents[2]
INFO = EncoderInfo(kind="embedding", vocab_size=100, max_tokens=20, size=4, dimensions=(2,))


class Scripted:
    """A model whose row is (first token, length, 0, 3). Token 13 breaks a batch, 66 gives no numbers.

    `gate` holds back every batch while it is not set; `batches` are those that came.
    """

    info = INFO

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.batches: list[list[int]] = []

    def rows(self, inputs: Sequence[EncoderInput]) -> torch.Tensor:
        self.entered.release()
        self.gate.wait(5)
        firsts = [each.token_ids[0] for each in inputs]
        self.batches.append(firsts)
        if 13 in firsts:
            raise RuntimeError("no memory")
        return torch.tensor(
            [
                [float("nan") if first == 66 else first, len(each.token_ids), 0, 3]
                for first, each in zip(firsts, inputs, strict=True)
            ]
        )


@asynccontextmanager
async def running(model: Scripted, *, max_sequences: int = 256, queue: int = 1024) -> AsyncIterator[EncoderEngine]:
    engine = EncoderEngine(model, EngineConfig(max_batch_tokens=8, max_sequences=max_sequences, queue=queue))
    try:
        yield engine
    finally:
        model.gate.set()
        await engine.aclose()


def text(first: int, length: int = 1) -> EncoderInput:
    return EncoderInput((first,) * length)


async def entered(model: Scripted) -> None:
    """Until the next batch has reached the model."""
    await asyncio.to_thread(model.entered.acquire, timeout=5)


async def test_rows_come_in_the_order_of_the_inputs_whatever_their_lengths() -> None:
    async with running(Scripted()) as engine:
        rows = await engine.encode([text(1, 3), text(2), text(3, 9), text(4, 2)])
    assert rows.dtype == np.float32
    assert rows[:, 0].tolist() == [1, 2, 3, 4]
    assert rows[:, 1].tolist() == [3, 1, 9, 2]


async def test_a_batch_holds_no_more_tokens_than_the_budget_but_for_one_long_input() -> None:
    model = Scripted()
    async with running(model) as engine:
        await engine.encode([text(1, 20), text(2, 5), text(3, 3), text(4, 1)])
    assert model.batches == [[1], [2, 3], [4]]


async def test_a_small_request_does_not_wait_for_all_of_a_large_one() -> None:
    model = Scripted()
    async with running(model) as engine:
        model.gate.clear()
        large = asyncio.create_task(engine.encode([text(1, 4)] * 10))
        await entered(model)
        small = asyncio.create_task(engine.encode([text(2, 4)]))
        await asyncio.sleep(0)
        model.gate.set()
        await asyncio.gather(small, large)
    assert model.batches[1] == [1, 2]


@pytest.mark.parametrize(
    ("inputs", "dimensions", "error"),
    [
        ([], None, InvalidInput),
        ([EncoderInput(())], None, InvalidInput),
        ([text(100)], None, InvalidInput),
        ([text(-1)], None, InvalidInput),
        ([text(1, 21)], None, ContextOverflow),
        ([text(1)], 3, InvalidInput),
        ([text(1)], 0, InvalidInput),
    ],
)
async def test_bad_input_is_refused_before_anything_is_computed(
    inputs: list[EncoderInput], dimensions: int | None, error: type[Exception]
) -> None:
    model = Scripted()
    async with running(model) as engine:
        with pytest.raises(error):
            await engine.encode(inputs, dimensions=dimensions)
    assert model.batches == []


async def test_vectors_are_cut_to_the_dimensions_asked_for_and_have_length_one_again() -> None:
    async with running(Scripted()) as engine:
        rows = await engine.encode([text(3, 4)], dimensions=2)
    assert rows.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]


async def test_one_request_too_many_is_refused_with_a_hint() -> None:
    model = Scripted()
    async with running(model, max_sequences=1, queue=1) as engine:
        model.gate.clear()
        waiting = [asyncio.create_task(engine.encode([text(1)])) for _ in range(2)]
        await entered(model)
        with pytest.raises(QueueFull) as caught:
            await engine.encode([text(1)])
        assert caught.value.limit == 2
        assert caught.value.retry_after_s > 0
        model.gate.set()
        await asyncio.gather(*waiting)
        await engine.encode([text(1)])


@pytest.mark.parametrize("bad", [13, 66])
async def test_a_fault_fails_its_own_request_alone(bad: int) -> None:
    model = Scripted()
    async with running(model) as engine:
        model.gate.clear()
        first = asyncio.create_task(engine.encode([text(9)]))
        await entered(model)
        good = asyncio.create_task(engine.encode([text(1), text(2)]))
        broken = asyncio.create_task(engine.encode([text(bad), text(3)]))
        await asyncio.sleep(0)
        model.gate.set()
        with pytest.raises(GenerationFailed):
            await broken
        assert (await good)[:, 0].tolist() == [1, 2]
        await first
        stats = engine.stats()
    assert (stats.finished, stats.failed, stats.requests) == (2, 1, 0)


async def test_a_request_that_is_cancelled_leaves_the_queue() -> None:
    model = Scripted()
    async with running(model) as engine:
        model.gate.clear()
        first = asyncio.create_task(engine.encode([text(1)]))
        await entered(model)
        left = asyncio.create_task(engine.encode([text(2)] * 100))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        assert engine.stats().requests == 1
        model.gate.set()
        await first
        assert engine.stats().aborted == 1
    assert model.batches == [[1]]


async def test_closing_ends_what_waits_and_draining_lets_it_end() -> None:
    model = Scripted()
    engine = EncoderEngine(model, EngineConfig())
    model.gate.clear()
    first = asyncio.create_task(engine.encode([text(1)]))
    await entered(model)
    closing = asyncio.create_task(engine.aclose(drain=True))
    await asyncio.sleep(0)
    with pytest.raises(EngineClosed):
        await engine.encode([text(2)])
    model.gate.set()
    await closing
    assert (await first)[0, 0] == 1

    model = Scripted()
    engine = EncoderEngine(model, EngineConfig())
    model.gate.clear()
    second = asyncio.create_task(engine.encode([text(1)]))
    await entered(model)
    closing = asyncio.create_task(engine.aclose())
    with pytest.raises(EngineClosed):
        await second
    model.gate.set()
    await closing


EXITS = """\
import asyncio, time
import torch
from local_engine.config import EngineConfig
from local_engine.encoder_engine import EncoderEngine
from local_engine.encoding import EncoderInfo, EncoderInput
begun = asyncio.Event()
class Slow:
    info = EncoderInfo(kind="embedding", vocab_size=100, max_tokens=20, size=1)
    def rows(self, inputs):
        loop.call_soon_threadsafe(begun.set)
        time.sleep(0.3)
        print("the batch ended", flush=True)
        return torch.ones(len(inputs), 1)
async def main():
    global loop
    loop = asyncio.get_running_loop()
    encoder = EncoderEngine(Slow(), EngineConfig(max_batch_tokens=1))
    task = asyncio.ensure_future(encoder.encode([EncoderInput((1,)), EncoderInput((2,))]))
    await begun.wait()
    return encoder, task
kept = asyncio.run(main())
"""


def test_the_end_of_the_process_waits_for_the_batch_that_runs_and_no_more() -> None:
    done = subprocess.run([sys.executable, "-c", EXITS], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout) == (0, "the batch ended\n"), done.stderr
