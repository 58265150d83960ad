"""The fused decoder on several ranks, by the twins of its kernels: the logits and tokens of one."""

from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType
from torch import Tensor

from local_engine.layers.ranks import Ranks
from tests.local_engine.kernels.gpu.on_cpu import load_on_cpu
from tests.local_engine.models.against_transformers import PROMPTS, logits_of
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.thread_ranks import on_ranks
from tests.local_engine.tiny_models import tiny_oracle, write_gguf, write_safetensors


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", ["Gemma2ForCausalLM", "GptOssForCausalLM", "Phi3ForCausalLM", "Q8_0", "Q4_0 tied"])
def test_ranks_compute_the_logits_of_the_whole(kind: str, size: int, tmp_path: Path) -> None:
    if kind.endswith("ForCausalLM"):
        path = write_safetensors(oracle_of(kind), tmp_path / "model")
    else:
        oracle = tiny_oracle(4, hidden_size=64, intermediate_size=128, tie_word_embeddings=kind.endswith("tied"))
        path = write_gguf(oracle, tmp_path / "model.gguf", matrix_type=GGMLQuantizationType[kind.split()[0]])

    def logits(ranks: Ranks) -> Tensor:
        return logits_of(load_on_cpu(path, ranks=ranks), PROMPTS[0])

    torch.testing.assert_close(
        on_ranks(size, logits)[0], logits_of(load_on_cpu(path), PROMPTS[0]), atol=1e-4, rtol=1e-4
    )
