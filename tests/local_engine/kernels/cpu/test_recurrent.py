"""Layers with states on the fused executor: the same bits in any company and however they are cut, torch's answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as FileType
from torch import Tensor

from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.kernels.cpu.executor import CpuExecutor
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence as EngineSequence
from tests.local_engine.engine_driver import generate, last, request, tokens_of
from tests.local_engine.kernels.cpu.libraries import runnable_libraries
from tests.local_engine.kernels.cpu.test_engine_features import requests, told
from tests.local_engine.kernels.cpu.test_executor import DELTA, EXACT, MAMBA, SHAPE, hidden_of, logits_of, sequence_of
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_gguf

# The last layer has a state in some, attention in others.
MODELS: Mapping[str, Mapping[str, Any]] = {
    "Lfm2ForCausalLM": {"layer_types": ["conv", "full_attention", "conv", "full_attention", "conv"], "conv_L_cache": 4},
    "Qwen3_5ForCausalLM": {"head_dim": 64, **DELTA},
    "GraniteMoeHybridForCausalLM": {"shared_intermediate_size": 96, **MAMBA},
}
FORMATS = [FileType.Q4_0, FileType.Q4_1, FileType.Q5_0, FileType.Q5_1, FileType.Q8_0, FileType.BF16]
TOKENS = [(7 * index + 3) % 128 for index in range(600)]
ROOMY = replace(EXACT, kv_bytes=1 << 27)
SMALL = EngineConfig(block_size=4, kv_bytes=1 << 26, max_batch_tokens=64, threads=2)
GREEDY = SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True)


@pytest.fixture(scope="module", params=MODELS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    oracle = oracle_of(request.param, **(SHAPE | dict(MODELS[request.param])))
    return write_gguf(oracle, tmp_path_factory.mktemp("states") / "m.gguf", matrix_type=FileType.Q8_0)


@pytest.fixture(scope="module")
def loaded(path: Path) -> LoadedModel:
    return load_model(path, EngineConfig())


def following(tokens: Sequence[int], number: int, **values: Any) -> EngineSequence:
    """With blocks and two slots of its own."""
    sequence = sequence_of(tokens, first_block=1 + 50 * number, **values)
    sequence.next_state = 1 + 2 * number
    return sequence


def chunk_of(sequence: EngineSequence, start: int, stop: int) -> Chunk:
    """The chunk behind the one before: its state is the one that was written last."""
    if start:
        sequence.state, sequence.next_state = sequence.next_state, sequence.state or sequence.next_state + 1
    return Chunk(sequence, start, stop)


def test_a_row_is_the_same_bits_however_its_prompt_is_cut_and_whoever_is_beside_it(loaded: LoadedModel) -> None:
    executor = loaded.open_executor(ROOMY)
    whole = hidden_of(executor, [Chunk(following(TOKENS, 0), 0, 600)])  # in parts of 256 rows
    alone = following(TOKENS, 1)
    rows = [hidden_of(executor, [chunk_of(alone, index, index + 1)]) for index in range(60)]
    assert torch.equal(torch.cat(rows), whole[:60])
    cut, others = following(TOKENS, 2), [following(TOKENS[::-1], 3 + number) for number in range(3)]
    pieces: list[Tensor] = []
    for turn, (start, stop) in enumerate(((0, 7), (7, 8), (8, 310), (310, 311), (311, 600))):
        beside = [chunk_of(other, 3 * turn, 3 * turn + 3) for other in others]
        hidden = hidden_of(executor, [*beside[:2], chunk_of(cut, start, stop), beside[2]])
        pieces.append(hidden[6 : 6 + stop - start])
    assert torch.equal(torch.cat(pieces), whole)


def test_a_state_that_was_read_can_be_read_again(loaded: LoadedModel) -> None:
    """A step that is computed anew, a fork, a snapshot: all begin with a slot that others have read."""
    executor = loaded.open_executor(ROOMY)
    first = following(TOKENS, 0)
    hidden_of(executor, [Chunk(first, 0, 20)])
    chunk = chunk_of(first, 20, 33)
    expected = hidden_of(executor, [chunk])
    assert torch.equal(hidden_of(executor, [chunk]), expected)
    fork = replace(first, next_state=9)
    assert torch.equal(hidden_of(executor, [Chunk(fork, 20, 33), chunk]), torch.cat((expected, expected)))


def test_a_prompts_last_rows_are_the_same_where_no_other_is_asked_for(loaded: LoadedModel) -> None:
    executor = loaded.open_executor(ROOMY)
    whole = hidden_of(executor, [Chunk(following(TOKENS, 0), 0, 300)])
    first, second = (following(TOKENS, number, scored=False) for number in (1, 2))
    mixed = hidden_of(executor, [Chunk(second, 0, 1), Chunk(first, 0, 300), Chunk(following(TOKENS[:9], 3), 0, 9)])
    assert torch.equal(mixed[[0, 300]], whole[[0, 299]])
    assert torch.equal(mixed[301:], whole[:9])
    rest = hidden_of(executor, [chunk_of(second, 1, 300)])
    assert torch.equal(rest[-1], whole[-1])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", FORMATS)
def test_quantised_weights_give_torchs_distribution_on_every_instruction_set(
    name: str, kind: FileType, tmp_path: Path
) -> None:
    oracle = oracle_of(name, **(SHAPE | dict(MODELS[name])))
    path = write_gguf(oracle, tmp_path / "m.gguf", matrix_type=kind)
    reference = EngineConfig(dtype="float32", kv_bytes=1 << 22)
    expected = logits_of(load_model(path, reference), reference).log_softmax(-1)
    found = []
    for library in runnable_libraries():
        instruction_set: Any = library.instruction_set
        config = replace(EXACT, cpu_instruction_set=instruction_set)
        found.append(logits_of(load_model(path, config), config))
    assert all(torch.equal(each, found[0]) for each in found)
    got = found[0].log_softmax(-1)
    # A random model magnifies what is rounded: the bound tells rounding from a wrong weight, which gives more than 1.
    assert float((expected.exp() * (expected - got)).sum(-1).mean()) < 0.1


def test_answers_are_the_same_bits_in_any_company(loaded: LoadedModel) -> None:
    assert isinstance(loaded.open_executor(SMALL), CpuExecutor)
    lone = Engine(loaded, replace(SMALL, prefix_cache=False))
    expected = [told(generate(lone, [item])[0]) for item in requests()]
    for config in (SMALL, replace(SMALL, max_batch_tokens=7), replace(SMALL, max_sequences=3)):
        engine = Engine(loaded, config)
        for again in (False, True):
            outcomes = generate(engine, requests())
            assert [told(outcome) for outcome in outcomes] == expected
            assert not again or any(last(outcome).cached_tokens for outcome in outcomes)
        assert engine.stats().blocks_used == 0


def test_a_prompt_begins_behind_the_snapshot_of_what_it_shares_with_others(loaded: LoadedModel) -> None:
    system = [*range(30, 54)]
    prompts = [[*system, tail, 9, 8, 7, 6, 5, 4, tail] for tail in (1, 2, 3, 4)]
    lone = Engine(loaded, replace(SMALL, prefix_cache=False))
    expected = [tokens_of(generate(lone, [request(prompt, GREEDY)])[0]) for prompt in prompts]
    engine = Engine(loaded, SMALL)
    for prompt, cached_tokens, answer in zip(prompts, (0, 0, 24, 24), expected, strict=True):
        (outcome,) = generate(engine, [request(prompt, GREEDY)])
        assert (tokens_of(outcome), last(outcome).cached_tokens) == (answer, cached_tokens)
