"""Many random requests of every kind at once leave nothing behind: no blocks, no memory, no bookkeeping."""

import gc
import random
from pathlib import Path
from typing import Any

import pytest

from local_engine.config import KVDType
from local_engine.draft_model import DraftModel
from local_engine.drafting import NgramDrafter
from local_engine.engine import Engine
from local_engine.errors import ContextOverflow, GenerationFailed, InvalidInput, QueueFull
from local_engine.generation import GenerationRequest, StepOutput, TokenMask
from local_engine.loading.load import LoadedModel
from local_engine.sampling import Dry, SamplingParams
from local_engine.sequence import Sequence
from tests.local_engine.engine_driver import Outcome, config_with_blocks, generate, small_config, tokens_of
from tests.local_engine.test_engine import POISON, raising
from tests.local_engine.test_masks import Counting, Failing

UNFINISHED = 24


class Crowd:
    """Arrivals, aborts and slow readers around one engine, all from one seed."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.live: dict[Sequence, Outcome] = {}
        self.ended: list[tuple[GenerationRequest, Outcome]] = []
        self.arrived = self.refused = 0

    def run(self, count: int) -> None:
        """Until this many more requests have come and all have ended."""
        last = self.arrived + count
        while self.arrived < last or self.live:
            while self.arrived < last and len(self.live) < self.random.randrange(UNFINISHED):
                self._arrive()
            for sequence in list(self.live):
                chance = self.random.random()
                if chance < 0.006:
                    self.engine.abort(sequence)
                    del self.live[sequence]
                elif chance < 0.03:
                    self.engine.pause(sequence)
                elif chance < 0.3:
                    self.engine.resume(sequence)
            events = self.engine.step()
            assert len({sequence for sequence, _ in events}) == len(events)
            for sequence, event in events:
                self.live[sequence].append(event)
                if sequence.done:
                    self.ended.append((sequence.request, self.live.pop(sequence)))
            self.engine.scheduler.check()

    def _arrive(self) -> None:
        self.arrived += 1
        try:
            self.live[self.engine.add(self._request())] = []
        except (ContextOverflow, InvalidInput, QueueFull):
            self.refused += 1

    def _request(self) -> GenerationRequest:
        draw = self.random
        common = [20, 21, 22, 23] * draw.randrange(4)
        prompt = (*common, *(draw.randrange(8, 45) for _ in range(draw.randrange(0, 20))))
        if draw.random() < 0.02:
            prompt = (*prompt, POISON)
        mask: TokenMask | None = None
        if draw.random() < 0.2:
            mask = Counting(draw.choice([2, 5]), length=draw.choice([3, 100]))
            if draw.random() < 0.1:
                mask = Failing(draw.choice(["fill", "accept", "length", "fork"]))
        return GenerationRequest(
            str(self.arrived),
            prompt,
            SamplingParams(**self._sampling()),
            priority=draw.choice([0, 0, 0, -1, 2]),
            cache_salt=draw.choice([None, None, "other"]),
            mask=mask,
            ends=(lambda answer: answer[-1] % 16 == 1) if draw.random() < 0.2 else None,
        )

    def _sampling(self) -> dict[str, Any]:
        draw = self.random
        several: dict[str, Any] = {}
        if draw.random() < 0.25:
            several = {"n": draw.randint(1, 3), "best_of": draw.randint(3, 4), "beam_search": draw.random() < 0.5}
        rare: dict[str, Any] = draw.choice(
            [
                {},
                {},
                {"prompt_logprobs": 1},
                {"context_logits": True},
                {"typical_p": 0.7, "xtc_probability": 0.5},
                {"dry": Dry(1.0), "repeat_last_n": 8},
                {"bad_words": ((20,), (21, 22))},
            ]
        )
        return {
            "max_tokens": draw.choice([0, 1, 5, 12, 30, None]),
            "temperature": draw.choice([0.0, 0.7, 1.0]),
            "top_p": draw.choice([1.0, 0.9]),
            "top_k": draw.choice([0, 10]),
            "repetition_penalty": draw.choice([1.0, 1.2]),
            "logit_bias": draw.choice([{}, {20: 4.0, 21: 4.0, 22: 4.0}]),
            "logprobs": draw.choice([None, 0, 2]),
            "ignore_eos": draw.random() < 0.7,
            "seed": draw.randrange(1000),
            **several,
            **rare,
        }


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def soak(
    model: LoadedModel, draft: LoadedModel | None, *, requests: int, blocks: int = 40, kv_dtype: KVDType = "auto"
) -> Crowd:
    config = config_with_blocks(
        model,
        blocks,
        kv_dtype=kv_dtype,
        max_batch_tokens=24,
        max_sequences=12,
        queue=10,
        draft_tokens=3,
        draft_kv_bytes=1 << 15,
    )
    crowd = Crowd(Engine(raising(model), config, draft=draft), seed=requests)
    crowd.run(requests // 4)
    before = resident_bytes()
    crowd.ended.clear()
    crowd.run(requests - requests // 4)
    engine = crowd.engine
    assert resident_bytes() - before < 32 << 20
    stats = engine.stats()
    assert (stats.blocks_used, stats.running, stats.waiting) == (0, 0, 0)
    engine.scheduler.allocator.check([])
    assert not engine._live._searches
    assert not engine._runner._late
    assert not engine.scheduler._requests
    drafter = engine._drafter
    if isinstance(drafter, DraftModel):
        drafter._allocator.check([])
        assert not drafter._twins
    else:
        assert isinstance(drafter, NgramDrafter)
        assert not drafter._lookups
    assert stats.finished + stats.failed + stats.aborted + crowd.refused == requests
    happened = (stats.preemptions, stats.failed, stats.aborted, stats.prefix_hits, stats.accepted_draft_tokens)
    assert requests < 1000 or all(happened)
    engine.close()
    return crowd


def check_answers(crowd: Crowd, model: LoadedModel, *, every: int, kv_dtype: KVDType = "auto") -> None:
    """Some of the answers against those of an idle engine without guesses."""
    answered = [
        ended for ended in crowd.ended if ended[0].mask is None and not isinstance(ended[1][-1], GenerationFailed)
    ]
    assert len(answered) > 5 * every  # which of them end well hangs on the clock: masks are compiled beside the steps
    for request, outcome in answered[::every]:
        last = outcome[-1]
        assert isinstance(last, StepOutput)
        (alone,) = generate(Engine(model, small_config(kv_dtype=kv_dtype)), [request])
        assert tokens_of(outcome) == tokens_of(alone)
        ended = alone[-1]
        assert isinstance(ended, StepOutput)
        assert [other.tokens and other.tokens[-1].token_id for other in last.others] == [
            other.tokens and other.tokens[-1].token_id for other in ended.others
        ]


@pytest.mark.parametrize("guesser", ["lookup", "draft model"])
def test_a_hundred_random_requests_leave_nothing_behind(
    tiny_model: LoadedModel, guesser: str, caplog: pytest.LogCaptureFixture
) -> None:
    crowd = soak(tiny_model, tiny_model if guesser == "draft model" else None, requests=100)
    assert not caplog.records
    check_answers(crowd, tiny_model, every=3)


@pytest.mark.slow
@pytest.mark.parametrize("guesser", ["lookup", "draft model"])
@pytest.mark.timeout(600)
def test_two_thousand_random_requests_leave_nothing_behind(
    tiny_model: LoadedModel, guesser: str, caplog: pytest.LogCaptureFixture
) -> None:
    crowd = soak(tiny_model, tiny_model if guesser == "draft model" else None, requests=2000)
    assert not caplog.records
    check_answers(crowd, tiny_model, every=20)
