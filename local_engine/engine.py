"""The engine, synchronous: requests in, one step at a time, outputs out. Owns scheduler, runner and executor.

No threads and no waiting here, so every interleaving can be tested; `async_engine` gives it a thread.
"""

import math
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from local_engine.adapters import Adapter, AdapterTable
from local_engine.block_allocator import BlockAllocator
from local_engine.config import EngineConfig
from local_engine.errors import ContextOverflow, EngineError, GenerationFailed, InvalidInput
from local_engine.generation import EngineStats, FinishReason, GenerationRequest, StepOutput, TokenOutput
from local_engine.loading.load import LoadedModel
from local_engine.prefix_keys import root_key
from local_engine.runner import Runner, StepResult
from local_engine.scheduler import Chunk, Scheduler
from local_engine.sequence import Sequence

__all__ = ["Engine", "SequenceEvent"]

# What happened to a sequence in a step.
SequenceEvent = tuple[Sequence, StepOutput | EngineError]

_MAX_RETRY_S = 60.0


class Engine:
    """One model on one device. Not thread-safe.

    clock: seconds, monotonic. draw_seed: 64 random bits for requests without a seed.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        config: EngineConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        draw_seed: Callable[[], int] = lambda: secrets.randbits(64),
    ) -> None:
        self.config = config
        self._info = loaded.info
        self._load_id = loaded.load_id
        self._clock = clock
        self._draw_seed = draw_seed
        self.adapters = AdapterTable()
        self._read_adapter = loaded.read_adapter
        executor = loaded.open_executor(config)
        self._runner = Runner(executor)
        self.scheduler = Scheduler(
            BlockAllocator(executor.num_blocks),
            block_size=config.block_size,
            max_batch_tokens=config.max_batch_tokens,
            max_sequences=config.max_sequences,
            queue=config.queue,
            prefix_cache=config.prefix_cache,
        )
        windows = (loaded.info.config.max_context, config.max_context, executor.num_blocks * config.block_size)
        self.max_context = min(window for window in windows if window is not None)
        self._stop_ids = frozenset(loaded.info.stop_token_ids)
        self._arrivals = 0
        self._prompt_tokens = self._prefix_hits = self._generated_tokens = 0
        self._finished = self._failed = self._aborted = 0
        self._last_end_s = clock()
        self._end_interval_s = 1.0

    @property
    def vocab_size(self) -> int:
        return self._info.config.vocab_size

    @property
    def has_work(self) -> bool:
        """A step would advance something."""
        return self.scheduler.runnable

    def check(self, request: GenerationRequest) -> None:
        """Everything about a request that needs the model but no state.

        Raises InvalidInput, UnknownAdapter or ContextOverflow.
        """
        if request.adapter is not None:
            self.adapters.find(request.adapter)
        if type(request.priority) is not int or not -(2**31) <= request.priority < 2**31:
            raise InvalidInput("priority", "must be a 32-bit integer")
        prompt, sampling = request.prompt, request.sampling
        if not prompt:
            raise InvalidInput("prompt", "has no tokens")
        if len(prompt) >= self.max_context:
            raise ContextOverflow(prompt_tokens=len(prompt), limit=self.max_context)
        # Set, min and max first: they run at C speed over the 100,000 ids that a prompt may have.
        if set(map(type, prompt)) != {int} or min(prompt) < 0 or max(prompt) >= self.vocab_size:
            valid = (type(token_id) is int and 0 <= token_id < self.vocab_size for token_id in prompt)
            index = next(index for index, good in enumerate(valid) if not good)
            raise InvalidInput("prompt", f"item {index} is no token id below {self.vocab_size}")
        room = self.max_context - len(prompt)
        if sampling.max_tokens is not None and sampling.max_tokens > room:
            raise ContextOverflow(prompt_tokens=len(prompt), limit=self.max_context, max_tokens=sampling.max_tokens)
        if sampling.min_tokens > room:
            raise InvalidInput("min_tokens", f"{sampling.min_tokens} exceeds the {room} tokens that fit")
        for param, token_id in sampling.token_ids():
            if token_id >= self.vocab_size:
                raise InvalidInput(param, f"token id {token_id} is not below the vocabulary's size, {self.vocab_size}")
        for param, count in (("logprobs", sampling.logprobs), ("prompt_logprobs", sampling.prompt_logprobs)):
            if count is not None and count > self.vocab_size:
                raise InvalidInput(param, f"{count} exceeds the vocabulary's size, {self.vocab_size}")

    def add(self, request: GenerationRequest) -> Sequence:
        """Queues a request. Raises what `check` raises, and QueueFull."""
        self.check(request)
        adapter = None if request.adapter is None else self.adapters.find(request.adapter)
        sampling = request.sampling
        room = self.max_context - len(request.prompt)
        sequence = Sequence(
            request=request,
            arrival=self._arrivals,
            seed=self._draw_seed() if sampling.seed is None else sampling.seed,
            stop_ids=frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else self._stop_ids),
            max_tokens=room if sampling.max_tokens is None else sampling.max_tokens,
            root=root_key(
                weights=self._load_id,
                kv_dtype=self.config.stored_kv_dtype,
                adapter=None if adapter is None else adapter.generation,
                cache_salt=request.cache_salt,
            ),
            adapter=adapter,
        )
        self.scheduler.add(sequence, retry_after_s=self.retry_after_s)
        self._arrivals += 1
        return sequence

    def load_adapter(self, name: str, folder: Path) -> None:
        """Reads a LoRA adapter that requests may then name. Blocks, and may run in any thread.

        Raises InvalidInput for a name that cannot be, and ModelLoadError.
        """
        self.adapters.check_new(name)
        self.adapters.add(Adapter(name, self._read_adapter(folder)))

    def abort(self, sequence: Sequence) -> None:
        """Forgets a sequence and frees its blocks; nothing happens if it has ended already."""
        if not sequence.done:
            self._remove(sequence)
            self._aborted += 1

    def pause(self, sequence: Sequence) -> None:
        """Keeps a sequence out of the next steps until `resume`; it holds its blocks while nobody needs them."""
        sequence.paused = True

    def resume(self, sequence: Sequence) -> None:
        sequence.paused = False

    def step(self) -> list[SequenceEvent]:
        """Computes one batch and returns what is new. Empty when there was nothing to do, or only parts of prompts."""
        chunks = self.scheduler.schedule()
        if not chunks:
            return []
        events: list[SequenceEvent] = []
        try:
            results = self._runner.run(chunks)
        except Exception as error:  # the engine thread's edge: whatever the device raises must not end other requests
            return self._run_alone(chunks, error)
        for chunk, result in results.items():
            events += self._apply(chunk, result)
        return events

    @property
    def retry_after_s(self) -> float:
        """How long until one of the unfinished requests ends, judging by the last ones: 1 to 60 s."""
        return min(max(self._end_interval_s, 1.0), _MAX_RETRY_S)

    def stats(self) -> EngineStats:
        """The present state. Reads counters only, so any thread may call it; they may be a step apart."""
        scheduler = self.scheduler
        return EngineStats(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            paused=sum(sequence.paused for sequence in (*scheduler.running, *scheduler.waiting)),
            blocks_used=scheduler.allocator.num_used,
            blocks_total=scheduler.allocator.num_blocks,
            prompt_tokens=self._prompt_tokens,
            generated_tokens=self._generated_tokens,
            preemptions=scheduler.preemptions,
            finished=self._finished,
            failed=self._failed,
            aborted=self._aborted,
            prefix_hits=self._prefix_hits,
        )

    def _run_alone(self, chunks: list[Chunk], error: Exception) -> list[SequenceEvent]:
        """After a batch failed: each chunk by itself, so that only those fail that cannot run at all."""
        events: list[SequenceEvent] = []
        for chunk in chunks:
            if len(chunks) > 1:
                try:
                    results = self._runner.run([chunk])
                except Exception as alone:  # as in `step`
                    error = alone
                else:
                    events += self._apply(chunk, results[chunk])
                    continue
            failure = GenerationFailed(f"the step failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            events.append(self._fail(chunk.sequence, failure))
        return events

    def _apply(self, chunk: Chunk, result: StepResult) -> list[SequenceEvent]:
        """Takes a chunk's result into its sequence; what its reader should hear of it."""
        sequence = chunk.sequence
        sampling = sequence.request.sampling
        scores, token = result
        self.scheduler.advance(sequence, chunk.stop)
        scored = None
        if sampling.prompt_logprobs is not None and len(sequence.prompt_scores) < sequence.num_prompt:
            if not sequence.prompt_scores:
                sequence.prompt_scores.append(TokenOutput(sequence.tokens[0], None, ()))
            sequence.prompt_scores += scores
            if not all(math.isfinite(entry.logprob) for entry in scores if entry.logprob is not None):
                return [self._fail(sequence, GenerationFailed("the model's logits are not finite numbers"))]
            if len(sequence.prompt_scores) == sequence.num_prompt:
                scored = tuple(sequence.prompt_scores)
        if not chunk.reaches_end:
            return [(sequence, self._output(sequence, (), scored=scored))] if scored else []
        if sequence.num_generated == 0:
            self._prompt_tokens += sequence.num_prompt
            self._prefix_hits += sequence.cached_tokens or 0
        if token is None:
            return [self._finish(sequence, (), "length", scored=scored)]
        if isinstance(token, GenerationFailed):
            return [self._fail(sequence, token)]
        if token.token_id in sequence.stop_ids:
            return [self._finish(sequence, (), "stop", scored=scored, stop_token_id=token.token_id)]
        sequence.append(token.token_id)
        self._generated_tokens += 1
        if sequence.num_generated >= sequence.max_tokens:
            return [self._finish(sequence, (token,), "length", scored=scored)]
        return [(sequence, self._output(sequence, (token,), scored=scored))]

    def _finish(
        self,
        sequence: Sequence,
        tokens: tuple[TokenOutput, ...],
        finish: FinishReason,
        *,
        scored: tuple[TokenOutput, ...] | None,
        stop_token_id: int | None = None,
    ) -> SequenceEvent:
        self._remove(sequence)
        self._finished += 1
        now = self._clock()
        # A moving average over about the last ten ends.
        self._end_interval_s += 0.1 * (now - self._last_end_s - self._end_interval_s)
        self._last_end_s = now
        output = self._output(sequence, tokens, scored=scored, finish=finish, stop_token_id=stop_token_id)
        return sequence, output

    def _fail(self, sequence: Sequence, failure: GenerationFailed) -> SequenceEvent:
        self._remove(sequence, sound=False)
        self._failed += 1
        return sequence, failure

    def _remove(self, sequence: Sequence, *, sound: bool = True) -> None:
        self.scheduler.remove(sequence, sound=sound)
        sequence.done = True

    def _output(
        self,
        sequence: Sequence,
        tokens: tuple[TokenOutput, ...],
        *,
        scored: tuple[TokenOutput, ...] | None = None,
        finish: FinishReason | None = None,
        stop_token_id: int | None = None,
    ) -> StepOutput:
        return StepOutput(
            tokens=tokens,
            finish=finish,
            stop_token_id=stop_token_id,
            prompt_logprobs=scored,
            prompt_tokens=sequence.num_prompt,
            cached_tokens=sequence.cached_tokens or 0,
        )
