"""Keys and values in other types: more blocks of the same bytes, answers as near as the type allows, laws kept."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from local_engine.chunk import Chunk
from local_engine.config import EngineConfig, KVDType
from local_engine.engine import Engine
from local_engine.errors import InvalidInput
from local_engine.generation import GenerationRequest, StepOutput
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence
from tests.local_engine.engine_driver import config_with_blocks, generate, last, request, small_config, tokens_of
from tests.local_engine.tiny_models import Oracle

PROMPT = [3, 17, 99, 42, 5, 64, 23, 8, 111, 2, 77, 31, 90, 12, 55, 6, 71, 28, 39, 101, 14, 64]
GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True, logprobs=0)
STORED: list[KVDType] = ["float16", "bfloat16", "fp8", "int8"]


@pytest.fixture(scope="module")
def tiny_model(tiny_folder: Path) -> LoadedModel:
    """For torch, whatever kernels this machine has."""
    return load_model(tiny_folder, EngineConfig(dtype="float32"))


def scores_of(loaded: LoadedModel, kv_dtype: KVDType) -> torch.Tensor:
    """Log-probabilities of the prompt's tokens after the first, the prompt cut into chunks of five."""
    engine = Engine(loaded, small_config(kv_dtype=kv_dtype, max_batch_tokens=5))
    (outcome,) = generate(engine, [request(PROMPT, replace(GREEDY, prompt_logprobs=0))])
    (entries,) = [event.prompt_logprobs for event in outcome if isinstance(event, StepOutput) and event.prompt_logprobs]
    return torch.tensor([entry.logprob for entry in entries[1:]])


@pytest.mark.parametrize(
    ("kv_dtype", "allowed"), [("float32", 2e-4), ("float16", 5e-3), ("bfloat16", 0.15), ("int8", 0.3), ("fp8", 0.8)]
)
def test_log_probabilities_differ_by_no_more_than_the_type_explains(
    tiny_model: LoadedModel, oracle: Oracle, kv_dtype: KVDType, allowed: float
) -> None:
    logprobs = torch.log_softmax(oracle.logits(PROMPT), -1)
    expected = torch.tensor([float(logprobs[index, token]) for index, token in enumerate(PROMPT[1:])])
    error = float((scores_of(tiny_model, kv_dtype) - expected).abs().max())
    assert error < allowed
    assert kv_dtype == "float32" or error > 1e-6  # else the type was not used


@pytest.mark.parametrize("kv_dtype", STORED)
def test_batched_chunked_preempted_and_cached_answers_are_those_of_a_lone_request(
    tiny_model: LoadedModel, kv_dtype: KVDType
) -> None:
    items = [request([*PROMPT[: 9 + 3 * index], 60 + index], GREEDY) for index in range(4)]
    expected = [tokens_of(generate(Engine(tiny_model, small_config(kv_dtype=kv_dtype)), [item])[0]) for item in items]
    engine = Engine(tiny_model, small_config(kv_dtype=kv_dtype, max_batch_tokens=7))
    for cached in (False, True):
        outcomes = generate(engine, items)
        assert [tokens_of(outcome) for outcome in outcomes] == expected
        assert all(last(outcome).cached_tokens > 0 for outcome in outcomes) or not cached
    float_blocks = config_with_blocks(tiny_model, 9).kv_bytes // 10
    stored_bytes = {"float16": 16, "bfloat16": 16, "fp8": 12, "int8": 12}[kv_dtype]
    narrow = Engine(
        tiny_model,
        small_config(kv_dtype=kv_dtype, kv_bytes=10 * float_blocks * stored_bytes // 32, max_batch_tokens=16),
    )
    assert narrow.stats().blocks_total == 9
    assert [tokens_of(outcome) for outcome in generate(narrow, items)] == expected
    assert narrow.stats().preemptions > 0


@pytest.mark.parametrize(("kv_dtype", "blocks"), [("auto", 63), ("float32", 63), ("bfloat16", 127), ("int8", 169)])
def test_the_same_bytes_hold_more_blocks_of_a_smaller_type(
    tiny_model: LoadedModel, kv_dtype: KVDType, blocks: int
) -> None:
    config = replace(config_with_blocks(tiny_model, 63), kv_dtype=kv_dtype)
    assert Engine(tiny_model, config).stats().blocks_total == blocks


@pytest.mark.parametrize("kv_dtype", [*STORED, "float32"])
def test_a_copied_block_holds_all_that_the_other_holds(tiny_model: LoadedModel, kv_dtype: KVDType) -> None:
    executor = tiny_model.open_executor(small_config(kv_dtype=kv_dtype))

    def logits_behind(blocks: list[int]) -> torch.Tensor:
        sequence = Sequence(GenerationRequest("r", tuple(PROMPT[:9]), SamplingParams()), 0, 0, frozenset(), 1)
        sequence.blocks = blocks
        with torch.inference_mode():
            if blocks[0] == 1:
                executor.forward([Chunk(sequence, 0, 8)])
            return executor.logits(executor.forward([Chunk(sequence, 8, 9)]).hidden)

    expected = logits_behind([1, 2, 3])
    with torch.inference_mode():
        executor.copy_blocks([(1, 7), (2, 5)])
    assert torch.equal(logits_behind([7, 5, 9]), expected)


def test_prefix_keys_tell_the_types_apart(tiny_model: LoadedModel) -> None:
    types: list[KVDType] = ["float32", *STORED]
    roots = [
        Engine(tiny_model, small_config(kv_dtype=kv_dtype)).add(request(PROMPT, GREEDY)).root for kv_dtype in types
    ]
    assert len(set(roots)) == len(types)
    assert Engine(tiny_model, small_config()).add(request(PROMPT, GREEDY)).root == roots[0]


@pytest.mark.parametrize("kv_dtype", ["fp4", "FP8", "", None])
def test_an_unknown_type_is_refused_by_name(kv_dtype: str | None) -> None:
    with pytest.raises(InvalidInput, match="must be one of auto, float32, bfloat16, float16, fp8, int8") as caught:
        EngineConfig(kv_dtype=kv_dtype)  # type: ignore[arg-type]
    assert caught.value.param == "kv_dtype"
