"""The engine on its own thread, behind async iterators: the Generator that a server uses.

One thread runs all steps; event loops talk to it through a queue of commands and hear from it once a step. The thread
sleeps in that queue when nothing can advance. Every stream is bounded: a reader that falls behind pauses its sequence.
"""

import asyncio
import logging
import queue
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import EngineClosed, EngineError, GenerationFailed, QueueFull
from local_engine.generation import EngineStats, GenerationRequest, StepOutput
from local_engine.images import PlacedImage
from local_engine.loading.load import LoadedModel
from local_engine.sequence import Sequence

__all__ = ["AsyncEngine"]

_logger = logging.getLogger(__name__)

# How long the end of a process waits for the step that runs.
_EXIT_WAIT_S = 5.0


class _Stream:
    """One request's outputs on their way from the engine's thread to its reader.

    `sent` and `paused` are written by the engine's thread, `taken` and what `deliver` touches by the reader's loop.
    """

    def __init__(self, request: GenerationRequest, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.loop = loop
        self.images: tuple[PlacedImage, ...] = ()
        self.sequence: Sequence | None = None
        self.entered = False
        self.closed = False
        self.sent = 0
        self.taken = 0
        self.paused = False
        self._arrived: list[StepOutput] = []
        self._error: EngineError | None = None
        self._wake: asyncio.Future[None] | None = None

    def deliver(self, item: StepOutput | EngineError) -> None:
        """Called in the reader's loop."""
        if isinstance(item, StepOutput):
            self._arrived.append(item)
        else:
            self._error = item
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def next(self) -> StepOutput:
        """All that has arrived, as one output; waits for the first. Raises the error that ended the request."""
        while not self._arrived:
            if self._error is not None:
                raise self._error
            self._wake = self.loop.create_future()
            await self._wake
        arrived, self._arrived = self._arrived, []
        self.taken += sum(len(output.tokens) for output in arrived)
        return arrived[0] if len(arrived) == 1 else _merged(arrived)


@dataclass(frozen=True, slots=True)
class _Add:
    stream: _Stream


@dataclass(frozen=True, slots=True)
class _Abort:
    stream: _Stream


@dataclass(frozen=True, slots=True)
class _Resume:
    stream: _Stream


@dataclass(frozen=True, slots=True)
class _Close:
    drain: bool


_Command = _Add | _Abort | _Resume | _Close


class AsyncEngine:
    """Implements `Generator` over a loaded model. Streams may belong to different event loops.

    The constructor takes the KV pool, reads LoRA adapters and starts the thread; `aclose` ends it. A process that exits
    without `aclose` is held up for the step that runs, and no more. `draft` is the model that guesses; see `Engine`.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        config: EngineConfig,
        *,
        adapters: Mapping[str, Path] | None = None,
        draft: LoadedModel | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = Engine(loaded, config, draft=draft, clock=clock)
        for name, folder in (adapters or {}).items():
            self._engine.load_adapter(name, folder)
        self._config = config
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        # Streams from their admission to their end; its size is the bound on commands and on waiting requests.
        self._live: set[_Stream] = set()
        self._lock = threading.Lock()
        self._closing = False
        self._closed_because = "the engine is stopping and takes no more requests"
        self._failure: Future[str] = Future()
        # Images are read beside the steps, one request's after the other's; `_live` bounds how many wait.
        self._image_worker = ThreadPoolExecutor(
            1, thread_name_prefix="local-engine-images", initializer=partial(_set_threads, config.threads)
        )
        self._thread = threading.Thread(target=self._run, name="local-engine", daemon=True)
        self._thread.start()
        weakref.finalize(self, _end_thread, self._commands, self._thread)

    @property
    def max_context(self) -> int:
        return self._engine.max_context

    @property
    def vocab_size(self) -> int:
        return self._engine.vocab_size

    @property
    def adapters(self) -> tuple[str, ...]:
        return self._engine.adapters.names

    def load_adapter(self, name: str, folder: Path) -> None:
        """See `Generator.load_adapter`."""
        self._engine.load_adapter(name, folder)

    def unload_adapter(self, name: str) -> None:
        """See `Generator.unload_adapter`. A request that is admitted but not yet taken up is refused as well."""
        self._engine.adapters.remove(name)

    def stats(self) -> EngineStats:
        return self._engine.stats()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[StepOutput, None]:
        """See `Generator.generate`. Nothing is held before its first step, and nothing after it is closed.

        An abandoned request stops within one step of the engine.
        """
        stream = self._admit(request)
        try:
            if request.images:
                stream.images = await asyncio.wrap_future(self._submit_images(stream))
            self._enter(stream)
            while True:
                output = await stream.next()
                # The thread sets `paused` before it reads `taken` again, so one of the two sides sees the other.
                if stream.paused:
                    self._commands.put(_Resume(stream))
                yield output
                if output.finish is not None:
                    return
        finally:
            stream.closed = True
            if not stream.entered:
                self._forget(stream)
            elif stream in self._live:
                self._commands.put(_Abort(stream))

    def when_failed(self, told: Callable[[str], object]) -> None:
        """See `Generator.when_failed`."""
        self._failure.add_done_callback(lambda failure: told(failure.result()))

    async def aclose(self, *, drain: bool = False) -> None:
        """Ends the thread, and with it every stream: with finish "abort", or by its own end with `drain`.

        May be called again, also to cut a drain short.
        """
        with self._lock:
            self._closing = True
            self._commands.put(_Close(drain))
        await asyncio.to_thread(self._thread.join)

    def _admit(self, request: GenerationRequest) -> _Stream:
        self._engine.check(request)
        stream = _Stream(request, asyncio.get_running_loop())
        limit = self._engine.scheduler.limit
        with self._lock:
            if self._closing:
                raise EngineClosed(self._closed_because)
            if len(self._live) >= limit:
                raise QueueFull(limit=limit, retry_after_s=self._engine.retry_after_s)
            self._live.add(stream)
        return stream

    def _submit_images(self, stream: _Stream) -> "Future[tuple[PlacedImage, ...]]":
        """Has a request's images read. Raises EngineClosed."""
        with self._lock:
            if self._closing:
                raise EngineClosed(self._closed_because)
            return self._image_worker.submit(self._read_images, stream)

    def _read_images(self, stream: _Stream) -> tuple[PlacedImage, ...]:
        """In the worker; none for a request that nobody waits for. Raises GenerationFailed."""
        if self._closing or stream.closed:
            return ()
        try:
            return self._engine.read_images(stream.request)
        except Exception as error:  # what a device raises, as in `Engine.step`
            raise GenerationFailed(f"an image cannot be read: {type(error).__name__}: {error}") from error

    def _enter(self, stream: _Stream) -> None:
        """Hands an admitted request to the engine's thread."""
        with self._lock:
            if self._closing:
                raise EngineClosed(self._closed_because)
            stream.entered = True
            self._commands.put(_Add(stream))  # under the lock: never behind the _Close that ends the thread

    # Everything below runs on the engine's thread.

    def _run(self) -> None:
        _set_threads(self._config.threads)
        failure: str | None = None
        try:
            self._serve()
        except Exception as error:  # the thread's edge: readers must hear of a defect, or they would wait for ever
            _logger.exception("the engine stopped")
            with self._lock:
                self._closing = True
                self._closed_because = failure = f"the engine stopped: {error}"
                orphans, self._live = self._live, set()
            self._send([(stream, GenerationFailed(self._closed_because)) for stream in orphans])
        finally:
            self._image_worker.shutdown(wait=False)
            self._engine.close()
        if failure is not None:
            self._failure.set_result(failure)

    def _serve(self) -> None:
        streams: dict[Sequence, _Stream] = {}
        closing: _Close | None = None
        while True:
            while not self._commands.empty() or not self._engine.has_work:
                if closing is not None and (not closing.drain or not streams) and self._commands.empty():
                    self._abandon(streams)
                    return
                if self._commands.empty() and self._engine.prepare():
                    continue
                command = self._commands.get()
                if isinstance(command, _Close):
                    closing = command
                else:
                    self._obey(command, streams)
            if closing is not None and not closing.drain:
                self._abandon(streams)
                return
            self._publish(self._engine.step(), streams)

    def _obey(self, command: "_Add | _Abort | _Resume", streams: dict[Sequence, _Stream]) -> None:
        stream = command.stream
        match command:
            case _Add():
                if stream.closed:
                    self._forget(stream)
                    return
                try:
                    stream.sequence = self._engine.add(stream.request, stream.images)
                except EngineError as error:
                    self._send([(stream, error)])
                    self._forget(stream)
                    return
                streams[stream.sequence] = stream
            case _Abort():
                if stream.sequence is not None and stream.sequence in streams:
                    self._engine.abort(stream.sequence)
                    del streams[stream.sequence]
                    self._forget(stream)
            case _Resume():
                if stream.sequence is not None and stream.paused:
                    stream.paused = False
                    self._engine.resume(stream.sequence)

    def _publish(
        self, events: list[tuple[Sequence, StepOutput | EngineError]], streams: dict[Sequence, _Stream]
    ) -> None:
        items: list[tuple[_Stream, StepOutput | EngineError]] = []
        for sequence, item in events:
            stream = streams[sequence]
            items.append((stream, item))
            if sequence.done:
                del streams[sequence]
                self._forget(stream)
            elif isinstance(item, StepOutput):
                stream.sent += len(item.tokens)
                self._hold_back(stream, sequence)
        self._send(items)

    def _hold_back(self, stream: _Stream, sequence: Sequence) -> None:
        limit = self._config.delivery_tokens
        if stream.sent - stream.taken < limit:
            return
        stream.paused = True
        if stream.sent - stream.taken < limit:
            stream.paused = False  # the reader took some in between and may not have seen that it paused
        else:
            self._engine.pause(sequence)

    def _send(self, items: list[tuple[_Stream, StepOutput | EngineError]]) -> None:
        """Hands items to their loops, waking each loop once."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Stream, StepOutput | EngineError]]] = {}
        for stream, item in items:
            by_loop.setdefault(stream.loop, []).append((stream, item))
        for loop, owned in by_loop.items():
            try:
                loop.call_soon_threadsafe(_deliver, owned)
            except RuntimeError:
                # The loop was closed under its readers: they are gone.
                for stream, _ in owned:
                    self._commands.put(_Abort(stream))

    def _forget(self, stream: _Stream) -> None:
        with self._lock:
            self._live.discard(stream)

    def _abandon(self, streams: dict[Sequence, _Stream]) -> None:
        """Ends every sequence where it is."""
        items: list[tuple[_Stream, StepOutput | EngineError]] = []
        for sequence, stream in streams.items():
            self._engine.abort(sequence)
            items.append((stream, StepOutput((), "abort", None, None, sequence.num_prompt, 0)))
            self._forget(stream)
        streams.clear()
        self._send(items)


def _set_threads(count: int | None) -> None:
    """Of the thread that calls it: torch keeps the number for each."""
    if count is not None:
        torch.set_num_threads(count)


def _end_thread(commands: queue.SimpleQueue[_Command], thread: threading.Thread) -> None:
    """When the process ends: a thread that is in torch while the interpreter goes would end it with an abort."""
    commands.put(_Close(drain=False))
    if thread is not threading.current_thread():
        thread.join(_EXIT_WAIT_S)


def _deliver(items: list[tuple[_Stream, StepOutput | EngineError]]) -> None:
    for stream, item in items:
        stream.deliver(item)


def _merged(outputs: list[StepOutput]) -> StepOutput:
    last = outputs[-1]
    return StepOutput(
        tokens=tuple(token for output in outputs for token in output.tokens),
        finish=last.finish,
        stop_token_id=last.stop_token_id,
        prompt_logprobs=next((output.prompt_logprobs for output in outputs if output.prompt_logprobs), None),
        prompt_tokens=last.prompt_tokens,
        cached_tokens=last.cached_tokens,
        accepted_draft_tokens=last.accepted_draft_tokens,
        rejected_draft_tokens=last.rejected_draft_tokens,
        began_s=next((output.began_s for output in outputs if output.began_s is not None), None),
        context_logits=next((output.context_logits for output in outputs if output.context_logits is not None), None),
    )
