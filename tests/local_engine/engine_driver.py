"""Runs the synchronous engine to the end, checking the scheduler's integrity after every step."""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import EngineError
from local_engine.generation import GenerationRequest, StepOutput, TokenOutput
from local_engine.kv_pool import kv_block_bytes
from local_engine.loading.load import LoadedModel
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence
from local_engine.state_pool import state_bytes, state_slots

Outcome = list[StepOutput | EngineError]


def small_config(**overrides: Any) -> EngineConfig:
    return replace(EngineConfig(block_size=4, kv_bytes=1 << 20, max_batch_tokens=64), **overrides)


def config_with_blocks(loaded: LoadedModel, count: int, **overrides: Any) -> EngineConfig:
    """A configuration whose KV pool has exactly `count` blocks of 4 positions."""
    shape = loaded.info.config
    config = small_config(**overrides)
    block_bytes = kv_block_bytes(shape, replace(config, kv_dtype="float32"))
    least = block_bytes * (count + 1)
    fitting = (
        size
        for size in itertools.count(least, block_bytes)
        if size - state_slots(shape, config, size) * state_bytes(shape) >= least
    )
    return replace(config, kv_bytes=next(fitting))


def request(
    prompt: Iterable[int], sampling: SamplingParams, *, name: str = "r", priority: int = 0
) -> GenerationRequest:
    return GenerationRequest(name, tuple(prompt), sampling, priority)


def run(engine: Engine, *, steps: int = 10_000) -> dict[Sequence, Outcome]:
    """Every sequence's events until none can advance. Fails after `steps`, so a stuck engine cannot hang a test."""
    outcomes: dict[Sequence, Outcome] = {}
    for _ in range(steps):
        if not engine.has_work:
            return outcomes
        for sequence, event in engine.step():
            outcomes.setdefault(sequence, []).append(event)
        engine.scheduler.check()
    raise AssertionError(f"not done after {steps} steps: {engine.stats()}")


def generate(engine: Engine, requests: Iterable[GenerationRequest]) -> list[Outcome]:
    """The events of each request, all added at once."""
    sequences = [engine.add(item) for item in requests]
    outcomes = run(engine)
    return [outcomes[sequence] for sequence in sequences]


def tokens_of(outcome: Outcome) -> list[int]:
    return [token.token_id for token in token_outputs(outcome)]


def token_outputs(outcome: Outcome) -> list[TokenOutput]:
    outputs: list[TokenOutput] = []
    for event in outcome:
        assert isinstance(event, StepOutput), event
        outputs += event.tokens
    return outputs


def last(outcome: Outcome) -> StepOutput:
    event = outcome[-1]
    assert isinstance(event, StepOutput), event
    return event
