"""Every row of the registry in bfloat16 and float16 on a CPU: as near to float32 as transformers is in that type."""

import copy
from pathlib import Path

import pytest
import torch

from local_engine.chunk import Chunk
from local_engine.config import DType, EngineConfig
from local_engine.engine import Engine
from local_engine.generation import GenerationRequest
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence
from tests.local_engine.engine_driver import generate, last, request, small_config, token_outputs
from tests.local_engine.models.against_transformers import PROMPTS
from tests.local_engine.models.tiny_oracles import TEXT_ARCHITECTURES, oracle_of
from tests.local_engine.tiny_adapters import ALL_LINEAR, write_adapter
from tests.local_engine.tiny_models import Oracle, write_safetensors

HALVES: list[DType] = ["bfloat16", "float16"]
SCORED = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, logprobs=3)


def logits_of(loaded: LoadedModel, tokens: list[int], dtype: DType) -> torch.Tensor:
    """[T, V], from the prompt in two chunks."""
    executor = loaded.open_executor(small_config(dtype=dtype))
    sequence = Sequence(GenerationRequest("r", tuple(tokens), SamplingParams()), 0, 0, frozenset(), 1)
    sequence.blocks = list(range(1, 2 + len(tokens) // 4))
    with torch.inference_mode():
        parts = [executor.forward([Chunk(sequence, *ends)]).hidden for ends in ((0, 7), (7, len(tokens)))]
        return executor.logits(torch.cat(parts))


# transformers' tower of Llama 4 has complex numbers, which nothing here reads.
@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", TEXT_ARCHITECTURES)
def test_logits_are_as_near_to_float32_as_those_of_transformers(name: str, dtype: DType, tmp_path: Path) -> None:
    oracle = oracle_of(name)
    loaded = load_model(write_safetensors(oracle, tmp_path), EngineConfig(dtype=dtype))
    exact = oracle.logits(PROMPTS[0])
    halved = Oracle(copy.deepcopy(oracle.model).to(getattr(torch, dtype))).logits(PROMPTS[0]).float()
    ours = logits_of(loaded, PROMPTS[0], dtype)
    assert ours.dtype == torch.float32
    assert 0 < float((ours - exact).abs().mean()) < 1.5 * float((halved - exact).abs().mean())


@pytest.mark.parametrize("dtype", HALVES)
def test_batched_cached_and_adapted_answers_are_near_those_of_float32(
    oracle: Oracle, tiny_folder: Path, dtype: DType, tmp_path: Path
) -> None:
    write_adapter(oracle, tmp_path / "a", target_modules=ALL_LINEAR, lora_alpha=2)
    items = [
        GenerationRequest("r", tuple(prompt), SCORED, adapter=adapter) for prompt in PROMPTS for adapter in (None, "a")
    ]
    whole, half = (
        Engine(load_model(tiny_folder, EngineConfig(dtype=kind)), small_config(dtype=kind, max_batch_tokens=7))
        for kind in ("float32", dtype)
    )
    for engine in (whole, half):
        engine.load_adapter("a", tmp_path / "a")
    for cached in (False, True):
        for expected, found in zip(generate(whole, items), generate(half, items), strict=True):
            first, other = token_outputs(expected)[0], token_outputs(found)[0]
            likeliest = dict(other.top)
            shared = [(logprob, likeliest[token]) for token, logprob in first.top if token in likeliest]
            assert shared
            assert [theirs for theirs, _ in shared] == pytest.approx([ours for _, ours in shared], abs=0.35)
        repeated = generate(half, [request(PROMPTS[0], SCORED)])[0]
        assert last(repeated).cached_tokens == 16 or not cached
