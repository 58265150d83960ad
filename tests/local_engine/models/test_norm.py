"""Norms that multiply by 1 + weight do so in float32, as transformers' do, in whatever type the model computes."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm

from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig
from local_engine.layers.ops import REFERENCE
from local_engine.loading.plain_source import PlainSource
from local_engine.loading.safetensors import SafetensorsSource
from local_engine.loading.weights import Weights
from local_engine.models.norm import read_norm


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_a_norm_from_one_is_as_exact_as_transformers(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    oracle = Gemma3RMSNorm(64).to(dtype)
    torch.nn.init.normal_(oracle.weight, std=0.01)
    save_file({"n.weight": oracle.weight.detach()}, tmp_path / "model.safetensors")
    shape = ModelConfig("gemma3", 8, 64, 8, 1, 1, 1, 64, 8, rms_norm_eps=1e-6, block=BlockConfig(norm_offset=1.0))
    source = PlainSource(SafetensorsSource(tmp_path))
    norm = read_norm(shape, "n", 64, Weights(source, device=torch.device("cpu"), dtype=dtype), REFERENCE)
    x = torch.randn(50, 64, dtype=dtype)
    with torch.inference_mode():
        found, expected = norm(x), oracle(x)
    assert found.dtype == dtype
    tolerance = 1e-6 if dtype == torch.float32 else 0.0
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
