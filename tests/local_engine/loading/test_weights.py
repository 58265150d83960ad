"""What a whole model holds in memory while it is read, with the operations that run it on a CPU."""

import contextlib
from pathlib import Path

import gguf
import pytest
import torch

from local_engine.config import ModelConfig
from local_engine.layers.ops import REFERENCE, Ops, best_ops
from local_engine.loading.gguf_parts import open_gguf
from local_engine.loading.gguf_source import GgufSource
from local_engine.loading.plain_source import PlainSource
from local_engine.loading.safetensors import SafetensorsSource
from local_engine.loading.weights import TensorSource, Weights
from local_engine.models.decoder import Decoder
from local_engine.models.llama import gguf_names
from tests.local_engine.peak_memory import peak_bytes
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_gguf, write_safetensors

CPU = torch.device("cpu")
SHAPE = ModelConfig(
    architecture="llama",
    vocab_size=128,
    hidden_size=512,
    intermediate_size=1536,
    num_layers=6,
    num_heads=8,
    num_kv_heads=8,
    head_dim=64,
    max_context=64,
)
LARGEST_MATRIX = 2 * 1536 * 512  # gate and up as one


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return tiny_oracle(
        hidden_size=512, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=8
    )


def peak_of(source: TensorSource, ops: Ops, dtype: torch.dtype) -> int:
    def load() -> object:
        weights = Weights(source, device=CPU, dtype=dtype)
        model = Decoder(SHAPE, weights, ops)
        weights.finish()
        return model

    with torch.inference_mode():
        return peak_bytes(load)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_a_model_is_never_held_twice(kind: str, dtype: torch.dtype, oracle: Oracle, tmp_path: Path) -> None:
    weights = sum(weight.numel() for weight in oracle.model.state_dict().values())
    # One matrix as it was read, beside the one that the operations reorder it into; and pieces of what is unpacked.
    bound = (weights + 2 * LARGEST_MATRIX) * dtype.itemsize + (20 << 20)
    assert bound < 2 * weights * dtype.itemsize
    for ops in (REFERENCE, best_ops(CPU, dtype)):
        if kind == "safetensors":
            with contextlib.closing(SafetensorsSource(write_safetensors(oracle, tmp_path))) as file:
                assert peak_of(PlainSource(file), ops, dtype) < bound
        else:
            path = write_gguf(oracle, tmp_path / "m.gguf", matrix_type=gguf.GGMLQuantizationType.Q8_0)
            with open_gguf(path) as parts:
                assert peak_of(GgufSource(parts, gguf_names(SHAPE)), ops, dtype) < bound
