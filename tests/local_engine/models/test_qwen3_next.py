"""Variants of Qwen3-Next and Qwen3.5, and what of them is refused."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file, save_file

from local_engine.config import EngineConfig
from local_engine.kernels.cpu.executor import CpuExecutor
from local_engine.loading.load import load_model
from tests.local_engine.engine_driver import small_config
from tests.local_engine.models.against_transformers import PROMPTS, answer_alike, logits_of, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_gguf, write_safetensors

FOR_KERNELS: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "head_dim": 64,
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "partial_rotary_factor": 0.5,
}
"""Sizes that the fused kernels compute."""


@pytest.mark.parametrize("name", ["Qwen3NextForCausalLM", "Qwen3_5ForCausalLM"])
def test_as_many_value_heads_as_key_heads_and_heads_of_another_size(name: str, tmp_path: Path) -> None:
    overrides = {"linear_num_value_heads": 2, "linear_value_head_dim": 4, "linear_conv_kernel_dim": 2}
    answer_alike(oracle_of(name, **overrides), tmp_path)


def test_yarn_and_a_text_models_sections_of_mrope(tmp_path: Path) -> None:
    rope = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "partial_rotary_factor": 0.5,
    }
    answer_alike(oracle_of("Qwen3NextForCausalLM", rope_parameters=rope), tmp_path)
    oracle = oracle_of("Qwen3_5ForCausalLM")
    folder = write_safetensors(oracle, tmp_path / "mrope")
    _change(folder, rope_parameters=rope | {"rope_type": "default", "mrope_section": [2, 1, 1]})
    assert load_model(folder, EngineConfig()).info.config.attention_kinds[0].rope is not None


def test_experts_in_stacks_are_those_one_by_one(tmp_path: Path) -> None:
    oracle = oracle_of("Qwen3_5MoeForCausalLM")
    folder = write_safetensors(oracle, tmp_path)
    tensors = {
        name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if ".experts." not in name
    }
    stacks = {name: tensor for name, tensor in oracle.model.state_dict().items() if ".experts." in name}
    save_file(tensors | stacks, folder / "model.safetensors", metadata={"format": "pt"})
    loaded = load_model(folder, EngineConfig())
    torch.testing.assert_close(logits_of(loaded, PROMPTS[0]), oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_layers_that_guess_further_tokens_are_left_out_and_a_tower_of_a_text_model(
    dtype: Literal["auto", "float32"], tmp_path: Path
) -> None:
    oracle = oracle_of("Qwen3_5ForCausalLM", **FOR_KERNELS)
    folder = write_safetensors(oracle, tmp_path)
    beside = {"mtp.fc.weight": torch.zeros(3, 3), "model.visual.pos_embed.weight": torch.zeros(3, 3)}
    tensors = load_file(folder / "model.safetensors") | beside
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    loaded = load_model(folder, EngineConfig(dtype=dtype))
    assert isinstance(loaded.open_executor(small_config()), CpuExecutor) == (dtype == "auto")
    found, expected = logits_of(loaded, PROMPTS[0])[-1], oracle.logits(PROMPTS[0])[-1]
    torch.testing.assert_close(found, expected, atol=0.1, rtol=0.0)  # the kernels keep keys in bfloat16


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layer_types": ["full_attention"] * 3}, "layer_types has 3 items for 4 layers"),
        ({"layer_types": ["full_attention"] * 3 + ["mamba"]}, "layer_types has 'mamba'"),
        ({"layer_types": ["linear_attention"] * 4}, "4 recurrent layers of 4"),
        ({"linear_num_key_heads": 3}, "4 value heads of recurrent layers do not divide over 3 key heads"),
        ({"linear_conv_kernel_dim": 1}, "the convolution reads 1 positions, expected 2 to 64"),
        ({"linear_key_head_dim": 0}, "the size of a key head of recurrent layers is 0"),
        ({"partial_rotary_factor": 0}, "partial_rotary_factor is 0.0"),
    ],
)
def test_shapes_that_cannot_be_are_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    folder = write_safetensors(oracle_of("Qwen3_5ForCausalLM"), tmp_path)
    _change(folder, **changes)
    assert reason in refusal(folder)


def test_a_gguf_without_an_interval_between_layers_with_attention_is_refused(tmp_path: Path) -> None:
    path = write_gguf(
        oracle_of("Qwen3_5ForCausalLM"), tmp_path / "m.gguf", numbers={"qwen35.full_attention_interval": 0}
    )
    assert "qwen35.full_attention_interval is 0" in refusal(path)


def _change(folder: Path, **values: object) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text())
    if "rope_parameters" in config and "partial_rotary_factor" in values:
        config["rope_parameters"].pop("partial_rotary_factor", None)
    file.write_text(json.dumps(config | values))
