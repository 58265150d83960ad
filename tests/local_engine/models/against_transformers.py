"""What every architecture has to prove: our answers are those of transformers, from both file formats."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import ModelLoadError
from local_engine.generation import GenerationRequest
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence as EngineSequence
from tests.local_engine.engine_driver import generate, request, small_config, tokens_of
from tests.local_engine.tiny_models import Oracle, write_gguf, write_safetensors

__all__ = ["PROMPTS", "answer_alike", "logits_of", "refusal"]

PROMPTS = (
    [3, 17, 99, 42, 5, 64, 23, 8, 111, 2, 77, 31, 90, 12, 55, 6, 71, 28, 39],
    [3, 17, 99, 42, 5, 64, 24],
    [120],
    [44, 9, 81, 60, 61, 62, 100, 14, 15, 33, 92, 3],
)
_GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


def logits_of(loaded: LoadedModel, tokens: list[int]) -> torch.Tensor:
    """[T, V], computed in one chunk over a KV pool of its own."""
    executor = loaded.open_executor(EngineConfig(block_size=4, kv_bytes=1 << 22))
    sequence = EngineSequence(GenerationRequest("r", tuple(tokens), SamplingParams()), 0, 0, frozenset(), 1)
    sequence.blocks = list(range(1, 2 + len(tokens) // 4))
    sequence.next_state = min(executor.num_states, 1)
    with torch.inference_mode():
        return executor.logits(executor.forward([Chunk(sequence, 0, len(tokens))]).hidden)


def answer_alike(oracle: Oracle, tmp_path: Path, *, prompts: Sequence[list[int]] = PROMPTS) -> None:
    """Fails unless logits and greedy tokens are the oracle's: both formats, prompts alone and in one batch."""
    for path in (write_safetensors(oracle, tmp_path / "model"), write_gguf(oracle, tmp_path / "model.gguf")):
        loaded = load_model(path, EngineConfig(dtype="float32"))
        torch.testing.assert_close(logits_of(loaded, PROMPTS[0]), oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)
        requests = [request(prompt, _GREEDY) for prompt in prompts]
        # 7 tokens a step: prompts are cut into chunks, beside sequences that decode already.
        together = generate(Engine(loaded, small_config(max_batch_tokens=7)), requests)
        for prompt, item, outcome in zip(prompts, requests, together, strict=True):
            (alone,) = generate(Engine(loaded, small_config()), [item])
            answer = tokens_of(outcome)
            assert answer == tokens_of(alone) == oracle.greedy(prompt, 12, guess=answer)


def refusal(path: Path) -> str:
    """The reason for which a model is not loaded."""
    with pytest.raises(ModelLoadError) as caught:
        load_model(path, EngineConfig())
    return caught.value.reason
