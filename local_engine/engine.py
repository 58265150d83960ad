"""The engine, synchronous: requests in, one step at a time, outputs out. Owns scheduler, runner and executor.

No threads and no waiting here, so every interleaving can be tested; `async_engine` gives it a thread.
"""

import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from local_engine.adapters import Adapter, AdapterTable
from local_engine.admission import check_request
from local_engine.block_allocator import BlockAllocator
from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.draft_model import DraftModel
from local_engine.drafting import Drafter, NgramDrafter
from local_engine.errors import GenerationFailed, InvalidInput, RankLost
from local_engine.generation import EngineStats, GenerationRequest
from local_engine.images import ImageReader, PlacedImage
from local_engine.live_requests import LiveRequests, SequenceEvent
from local_engine.loading.load import LoadedModel
from local_engine.mask_feed import MaskFeed
from local_engine.pipeline import Pipeline
from local_engine.prefix_keys import root_key
from local_engine.runner import Runner
from local_engine.scheduler import Scheduler
from local_engine.sequence import Sequence
from local_engine.state_slots import StateSlots
from local_engine.totals import Totals

__all__ = ["Engine"]

_logger = logging.getLogger(__name__)

_MASK_WORKERS = 4
# How long a step waits for a mask when nothing else can be done.
_MASK_WAIT_S = 0.01


class Engine:
    """One model on one device. Not thread-safe.

    draft: the model that guesses, where `config.draft_tokens` says so; without one, guesses are looked up in the text.
    clock: seconds, monotonic. draw_seed: 64 random bits for requests without a seed.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        config: EngineConfig,
        *,
        draft: LoadedModel | None = None,
        clock: Callable[[], float] = time.monotonic,
        draw_seed: Callable[[], int] = lambda: secrets.randbits(64),
    ) -> None:
        self.config = config
        self._info = loaded.info
        self._load_id = loaded.load_id
        self._draw_seed = draw_seed
        self.adapters = AdapterTable()
        self._read_adapter = loaded.read_adapter
        if loaded.info.config.recurrent is not None and config.draft_tokens:
            raise InvalidInput("draft_tokens", "are not for models with recurrent layers, whose state cannot go back")
        executor = loaded.open_executor(config)
        self._runner = Runner(executor)
        self.scheduler = Scheduler(
            BlockAllocator(executor.num_blocks),
            StateSlots(executor.num_states, block_size=config.block_size),
            block_size=config.block_size,
            max_batch_tokens=config.max_batch_tokens,
            max_sequences=config.max_sequences,
            queue=config.queue,
            prefix_cache=config.prefix_cache,
        )
        self._pipeline: Pipeline | None = None
        if executor.ahead is not None and not config.draft_tokens:
            self._pipeline = Pipeline(executor.ahead, self.scheduler)
        self._grounded = False
        """The next step is computed by itself: one that was ahead has failed."""
        windows = (loaded.info.config.max_context, config.max_context, executor.num_blocks * config.block_size)
        self.max_context = min(window for window in windows if window is not None)
        self._stop_ids = frozenset(loaded.info.stop_token_ids)
        self._arrivals = 0
        self._drafter: Drafter | None = None
        if config.draft_tokens:
            if draft is not None:
                self._drafter = DraftModel(draft, config, vocab_size=self.vocab_size)
            else:
                self._drafter = NgramDrafter(step_rows=math.inf if loaded.step_rows is None else loaded.step_rows)
        self._images = ImageReader(loaded.encode_image, loaded.info.config.vision)
        self._mask_workers = ThreadPoolExecutor(_MASK_WORKERS, thread_name_prefix="local-engine-mask")
        self._clock = clock
        self._totals = Totals(clock)
        self._live = LiveRequests(self.scheduler, self._totals, forget=partial(_forget, self._runner, self._drafter))

    @property
    def vocab_size(self) -> int:
        return self._info.config.vocab_size

    @property
    def has_work(self) -> bool:
        """A step would advance something."""
        return self.scheduler.runnable or self._runner.waits_for_masks or self._under_way

    def check(self, request: GenerationRequest) -> None:
        """Everything about a request that needs the model but no state.

        Raises InvalidInput, UnknownAdapter or ContextOverflow.
        """
        if request.adapter is not None:
            self.adapters.find(request.adapter)
        check_request(
            request,
            max_context=self.max_context,
            vocab_size=self.vocab_size,
            max_sequences=self.config.max_sequences,
            vision=self._info.config.vision,
        )

    def read_images(self, request: GenerationRequest) -> tuple[PlacedImage, ...]:
        """What the model makes of a request's images. Blocks; any one thread may, whatever else the engine does."""
        return self._images.placed(request.images)

    def add(self, request: GenerationRequest, images: tuple[PlacedImage, ...] | None = None) -> Sequence:
        """Queues a request. Raises what `check` raises, and QueueFull. What it gives stands for the request.

        images: what `read_images` gave for it; None reads them now.
        """
        self.check(request)
        placed = self.read_images(request) if images is None else images
        vision = self._info.config.vision
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
            images=placed,
            uncut=tuple((image.start, image.stop) for image in placed if vision is not None and vision.bidirectional),
        )
        self.scheduler.add(sequence, retry_after_s=self.retry_after_s)
        self._arrivals += 1
        if request.mask is not None:
            sequence.masked = MaskFeed(request.mask, self.vocab_size, self._mask_workers)
        self._live.begin(sequence)
        return sequence

    def load_adapter(self, name: str, folder: Path) -> None:
        """Reads a LoRA adapter that requests may then name. Blocks, and may run in any thread.

        Raises InvalidInput for a name that cannot be, and ModelLoadError.
        """
        self.adapters.check_new(name)
        self.adapters.add(Adapter(name, self._read_adapter(folder)))

    def abort(self, sequence: Sequence) -> None:
        """Forgets a request and frees its blocks; nothing happens if it has ended already."""
        self._live.abort(sequence)

    def pause(self, sequence: Sequence) -> None:
        """Keeps a sequence out of the next steps until `resume`; it holds its blocks while nobody needs them."""
        sequence.paused = True

    def resume(self, sequence: Sequence) -> None:
        sequence.paused = False

    def step(self) -> list[SequenceEvent]:
        """Computes one batch and returns what is new, an event a request at most.

        Empty when there was nothing to do, only parts of prompts, or when results are still under way. Raises RankLost,
        after which nothing may be stepped.
        """
        events = self._take_late(timeout_s=0.0 if self.scheduler.runnable else _MASK_WAIT_S)
        if events:
            return events  # computing them further now could give one request two events
        if self._under_way or self._may_go_ahead:
            return self._step_ahead()
        self._grounded = False
        chunks = self._plan(self._draft(), events)
        if chunks:
            try:
                results = self._runner.run(chunks)
            except RankLost:
                raise
            except Exception as error:  # the engine thread's edge: what a device raises must not end other requests
                events += self._run_alone(chunks, error)
            else:
                events += self._live.take_all(results)
        self._totals.step_done()
        return events

    def prepare(self) -> bool:
        """To be called while there is no work, again and again until it gives False: later steps take less time."""
        return self._runner.prepare()

    def close(self) -> None:
        """Ends the workers, and gives back KV pool and threads. Nothing may be stepped after it."""
        self._mask_workers.shutdown(wait=False, cancel_futures=True)
        self._runner.close()
        if self._drafter is not None:
            self._drafter.close()

    @property
    def retry_after_s(self) -> float:
        """See `Totals.retry_after_s`."""
        return self._totals.retry_after_s

    def stats(self) -> EngineStats:
        """The present state. Reads counters only, so any thread may call it; they may be a step apart."""
        scheduler, totals = self.scheduler, self._totals
        return EngineStats(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            paused=sum(sequence.paused for sequence in (*scheduler.running, *scheduler.waiting)),
            blocks_used=scheduler.allocator.num_used,
            blocks_total=scheduler.allocator.num_blocks,
            prompt_tokens=totals.prompt_tokens,
            generated_tokens=totals.generated_tokens,
            preemptions=scheduler.preemptions,
            finished=totals.finished,
            failed=totals.failed,
            aborted=totals.aborted,
            prefix_hits=totals.prefix_hits,
            tokens_per_s=totals.tokens_per_s,
            accepted_draft_tokens=totals.accepted_drafts,
            rejected_draft_tokens=totals.rejected_drafts,
        )

    @property
    def _under_way(self) -> bool:
        return self._pipeline is not None and self._pipeline.busy

    @property
    def _may_go_ahead(self) -> bool:
        """The next step may be launched before the results of the last are known."""
        return self._pipeline is not None and not self._grounded and not self.scheduler.needs_host

    def _step_ahead(self) -> list[SequenceEvent]:
        """Launches the next step, unless it has to wait, and takes in what the one before has yielded."""
        assert self._pipeline is not None
        events: list[SequenceEvent] = []
        chunks = self._plan({}, events) if self._may_go_ahead else []
        try:
            results = self._pipeline.advance(chunks)
        except Exception:  # as in `step`; computed again by itself, it tells which requests cannot run
            _logger.warning("a step that was under way failed, and is computed again", exc_info=True)
            self._grounded = True
            results = {}
        for chunk, result in results.items():
            self._live.count_prompt(chunk.sequence)
            events += self._live.go_on(chunk.sequence, result, None)
        self._totals.step_done()
        return events

    def _plan(self, drafts: Mapping[Sequence, tuple[int, ...]], events: list[SequenceEvent]) -> list[Chunk]:
        """The chunks of the next step, each with blocks of its own to write to. Adds to `events` who fails without."""
        chunks = self.scheduler.schedule(drafts)
        for sequence in self.scheduler.begun:
            sequence.began_s = self._clock()
        if not self.scheduler.copies:
            return chunks
        events += self._copy_blocks(self.scheduler.copies)
        return [chunk for chunk in chunks if not chunk.sequence.done]

    def _draft(self) -> Mapping[Sequence, tuple[int, ...]]:
        """Guesses for the sequences that decode. One with a mask has none: its state goes forward only."""
        if self._drafter is None:
            return {}
        wanted = {}
        for sequence in self.scheduler.decoding:
            count = min(self.config.draft_tokens, sequence.max_tokens - sequence.num_generated - 1)
            if count > 0 and sequence.masked is None and not self._live.is_searched(sequence):
                wanted[sequence] = count
        try:
            return self._drafter.draft(wanted)
        except Exception:  # as in `step`; nobody needs a guess
            _logger.warning("no tokens could be guessed for this step", exc_info=True)
            return {}

    def _copy_blocks(self, pairs: list[tuple[int, int]]) -> list[SequenceEvent]:
        """Gives sequences blocks of their own; if the device cannot, those fail whose blocks have no content."""
        try:
            self._runner.copy_blocks(pairs)
        except RankLost:
            raise
        except Exception as error:  # as in `step`
            empty = {target for _, target in pairs}
            hit = [sequence for sequence in self.scheduler.running if not empty.isdisjoint(sequence.blocks)]
            return [event for sequence in hit for event in self._live.fail(sequence, _step_failure(error))]
        return []

    def _run_alone(self, chunks: list[Chunk], error: Exception) -> list[SequenceEvent]:
        """After a batch failed: each chunk by itself, so that only those fail that cannot run at all."""
        events: list[SequenceEvent] = []
        for chunk in chunks:
            if chunk.sequence.done:
                continue
            if len(chunks) > 1:
                try:
                    results = self._runner.run([chunk])
                except RankLost:
                    raise
                except Exception as alone:  # as in `step`
                    error = alone
                else:
                    events += self._live.take_all(results)
                    continue
            events += self._live.fail(chunk.sequence, _step_failure(error))
        return events

    def _take_late(self, *, timeout_s: float) -> list[SequenceEvent]:
        """Sequences whose masks have come go on."""
        events: list[SequenceEvent] = []
        for sequence, result in self._runner.sample_late(timeout_s=timeout_s).items():
            sequence.parked = False
            if not sequence.done:  # as in `LiveRequests.take_all`
                events += self._live.go_on(sequence, result, None)
        return events


def _forget(runner: Runner, drafter: Drafter | None, sequence: Sequence) -> None:
    """Not a method of the engine, which would then be garbage for the collector, and its weights with it."""
    runner.forget(sequence)
    if drafter is not None:
        drafter.forget(sequence)


def _step_failure(error: Exception) -> GenerationFailed:
    failure = GenerationFailed(f"the step failed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
