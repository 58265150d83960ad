"""Encoders on a thread of their own: requests of many inputs go in, batches are computed, rows come out.

Every request gets its turn: a batch takes an input of each in turn until its tokens are enough, so that one of a
thousand texts does not hold up one of a single text.
"""

import asyncio
import logging
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from local_engine.config import EngineConfig
from local_engine.encoding import EncoderInfo, EncoderInput, EncoderStats, Rows
from local_engine.errors import ContextOverflow, EngineClosed, EngineError, GenerationFailed, InvalidInput, QueueFull

__all__ = ["EncoderEngine", "EncoderModel"]

_logger = logging.getLogger(__name__)
_RETRY_S = 1.0
# How long the end of a process waits for the batch that runs.
_EXIT_WAIT_S = 5.0


class EncoderModel(Protocol):
    """The torch half of an encoder. Not thread-safe: the engine's thread owns it."""

    @property
    def info(self) -> EncoderInfo: ...

    def rows(self, inputs: Sequence[EncoderInput]) -> Tensor:
        """[N, size] float32, in the order of the inputs. On the CPU a row does not depend on its neighbours."""


class _Job:
    """One request on its way through the thread. `todo` are the places in `inputs` that no batch has yet."""

    def __init__(self, inputs: Sequence[EncoderInput], rows: Rows, loop: asyncio.AbstractEventLoop) -> None:
        self.inputs = inputs
        self.rows = rows
        self.loop = loop
        self.done: asyncio.Future[None] = loop.create_future()
        self.missing = len(inputs)  # rows
        # Taken from the end: long ones first, so that batches hold inputs of alike length.
        self.todo = sorted(range(len(inputs)), key=lambda place: len(inputs[place].token_ids))

    def end(self, error: EngineError | None) -> None:
        """Tells the caller, from the thread. A loop that is closed has no caller left."""
        try:
            self.loop.call_soon_threadsafe(self._settle, error)
        except RuntimeError:
            _logger.debug("the loop of a request was closed before its end")

    def _settle(self, error: EngineError | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class EncoderEngine:
    """Implements `Encoder`. The constructor starts the thread, `aclose` ends it. A process that exits without `aclose`
    is held up for the batch that runs, and no more.

    Bounds: `max_sequences + queue` requests, `max_batch_tokens` tokens a batch (one input may be longer).
    """

    def __init__(self, model: EncoderModel, config: EngineConfig) -> None:
        self._model = model
        self._limit = config.max_sequences + config.queue
        self._max_batch_tokens = config.max_batch_tokens
        self._threads = config.threads
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._tokens = self._finished = self._failed = self._aborted = 0
        self._thread = threading.Thread(target=self._run, name="local-encoder", daemon=True)
        self._thread.start()
        weakref.finalize(self, _end_thread, self._changed, self._closing, self._jobs, self._thread)

    @property
    def info(self) -> EncoderInfo:
        return self._model.info

    async def encode(self, inputs: Sequence[EncoderInput], *, dimensions: int | None = None) -> Rows:
        """See `Encoder.encode`."""
        info = self.info
        self._check(inputs, dimensions)
        job = _Job(inputs, np.empty((len(inputs), info.size), np.float32), asyncio.get_running_loop())
        with self._changed:
            if self._closing.is_set():
                raise EngineClosed("the engine is stopping and takes no more requests")
            if len(self._jobs) >= self._limit:
                raise QueueFull(limit=self._limit, retry_after_s=_RETRY_S)
            self._jobs.append(job)
            self._changed.notify()
        try:
            await job.done
        except asyncio.CancelledError:
            with self._changed:
                if job in self._jobs:
                    self._jobs.remove(job)
                    self._aborted += 1
            raise
        return job.rows if dimensions is None else _cut(job.rows, dimensions, normalized=info.normalized)

    def stats(self) -> EncoderStats:
        """See `Encoder.stats`."""
        with self._changed:
            return EncoderStats(
                requests=len(self._jobs),
                inputs=sum(len(job.todo) for job in self._jobs),
                tokens=self._tokens,
                finished=self._finished,
                failed=self._failed,
                aborted=self._aborted,
            )

    async def aclose(self, *, drain: bool = False) -> None:
        """See `Encoder.aclose`. May be called again, also to cut a drain short."""
        with self._changed:
            self._closing.set()
            if not drain:
                self._end_all(EngineClosed("the engine was stopped"))
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def _check(self, inputs: Sequence[EncoderInput], dimensions: int | None) -> None:
        info = self.info
        if not inputs:
            raise InvalidInput("input", "has no texts")
        if dimensions is not None and not info.can_cut_to(dimensions):
            sizes = "any below it" if info.dimensions == (0,) else ", ".join(map(str, info.dimensions)) or "no other"
            raise InvalidInput("dimensions", f"this model gives {info.size} numbers and {sizes}, not {dimensions}")
        for place, each in enumerate(inputs):
            length = len(each.token_ids)
            if not length:
                raise InvalidInput("input", f"item {place} has no tokens")
            if length > info.max_tokens:
                raise ContextOverflow(prompt_tokens=length, limit=info.max_tokens)
            if min(each.token_ids) < 0 or max(each.token_ids) >= info.vocab_size:
                raise InvalidInput("input", f"item {place} holds something else than token ids below {info.vocab_size}")

    # Everything below runs on the engine's thread.

    def _run(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        try:
            while (batch := self._next_batch()) is not None:
                self._compute(batch)
        except Exception as error:  # the thread's edge: callers must hear of a defect, or they would wait for ever
            _logger.exception("the encoder stopped")
            with self._changed:
                self._closing.set()
                self._end_all(GenerationFailed(f"the engine stopped: {error}"))

    def _next_batch(self) -> list[tuple[_Job, int]] | None:
        """Inputs to compute together: of each request in turn, until the tokens are enough. None: the end."""
        with self._changed:
            while not self._jobs:
                if self._closing.is_set():
                    return None
                self._changed.wait()
            batch: list[tuple[_Job, int]] = []
            tokens = 0
            open_jobs = deque(self._jobs)
            while open_jobs:
                job = open_jobs.popleft()
                if not job.todo:
                    continue
                size = len(job.inputs[job.todo[-1]].token_ids)
                if batch and tokens + size > self._max_batch_tokens:
                    break
                batch.append((job, job.todo.pop()))
                tokens += size
                open_jobs.append(job)
            self._jobs.rotate(-1)  # who came first this time comes last the next time
            return batch

    def _compute(self, batch: list[tuple[_Job, int]]) -> None:
        try:
            rows = self._rows([job.inputs[place] for job, place in batch])
        except Exception as error:  # whatever the device raises must not end other requests
            if len(batch) == 1:
                failure = GenerationFailed(f"the step failed: {type(error).__name__}: {error}")
                failure.__cause__ = error
                self._fail(batch[0][0], failure)
                return
            for each in batch:
                self._compute([each])
            return
        with self._changed:
            for (job, place), row in zip(batch, rows, strict=True):
                job.rows[place] = row
                job.missing -= 1
                self._tokens += len(job.inputs[place].token_ids)
                if not np.isfinite(row).all():
                    self._fail(job, GenerationFailed("the model's numbers are not finite"))
                if not job.missing and job in self._jobs:
                    self._jobs.remove(job)
                    self._finished += 1
                    job.end(None)

    def _rows(self, inputs: list[EncoderInput]) -> Rows:
        with torch.inference_mode():
            rows: Rows = self._model.rows(inputs).cpu().numpy()
        return rows

    def _fail(self, job: _Job, failure: EngineError) -> None:
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
                self._failed += 1
                job.end(failure)

    def _end_all(self, error: EngineError) -> None:
        """Called with the lock held."""
        while self._jobs:
            self._aborted += 1
            self._jobs.popleft().end(error)


def _end_thread(
    changed: threading.Condition, closing: threading.Event, jobs: deque[_Job], thread: threading.Thread
) -> None:
    """When the process ends: a thread that is in torch while the interpreter goes would end it with an abort."""
    with changed:
        closing.set()
        jobs.clear()
        changed.notify()
    if thread is not threading.current_thread():
        thread.join(_EXIT_WAIT_S)


def _cut(rows: Rows, dimensions: int, *, normalized: bool) -> Rows:
    """The first numbers of each row, of length 1 again where they were."""
    cut = rows[:, :dimensions]
    return cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12) if normalized else cut.copy()
