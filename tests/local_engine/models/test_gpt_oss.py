"""gpt-oss against transformers' on random weights, plain and in mxfp4. See also test_every_architecture."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from local_engine.config import EngineConfig
from local_engine.loading.gguf import GgufFile
from local_engine.loading.load import load_model
from tests.local_engine.loading.packed.packed_files import answers_as_its_plain_numbers, mxfp4
from tests.local_engine.models.against_transformers import PROMPTS, answer_alike, logits_of, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import Oracle, write_gguf, write_safetensors

NAME = "GptOssForCausalLM"
MXFP4 = gguf.GGMLQuantizationType.MXFP4


@pytest.mark.parametrize(
    "variant",
    [
        {"num_experts_per_tok": 4},
        {"sliding_window": 1},
        {"tie_word_embeddings": True},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    ],
    ids=["all_experts", "window_of_one", "tied", "plain_rope"],
)
def test_it_answers_as_transformers_from_both_formats_alone_and_batched(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    answer_alike(oracle_of(NAME, **variant), tmp_path)


@pytest.mark.parametrize(
    "variant",
    [
        {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
        {"attention_bias": False},
        {"swiglu_alpha": 1.1, "swiglu_limit": 0.5},
    ],
    ids=["other_windows", "no_attention_bias", "other_swiglu"],
)
def test_what_a_gguf_cannot_say_is_read_from_safetensors(variant: dict[str, Any], tmp_path: Path) -> None:
    oracle = oracle_of(NAME, **variant)
    loaded = load_model(write_safetensors(oracle, tmp_path), EngineConfig())
    torch.testing.assert_close(logits_of(loaded, PROMPTS[0]), oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


def test_sinks_change_the_answer() -> None:
    oracle, other = oracle_of(NAME), oracle_of(NAME)
    for name, weight in other.model.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.constant_(weight, -1e9)
    assert not torch.allclose(oracle.logits(PROMPTS[0]), other.logits(PROMPTS[0]), atol=0.01)


def write_mxfp4(folder: Path, **shape: Any) -> Oracle:
    """The model with its experts in mxfp4, as OpenAI publishes it; the oracle computes with the same numbers."""
    oracle = oracle_of(NAME, **shape)
    write_safetensors(oracle, folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    weights = dict(oracle.model.named_parameters())
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        parts, numbers = mxfp4(tensors.pop(name).transpose(1, 2))
        tensors |= {name + ending: part for ending, part in parts.items()}
        with torch.no_grad():
            weights[name].copy_(numbers.transpose(1, 2))
    save_file(tensors, file)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    return oracle


def test_mxfp4_experts_answer_as_their_plain_numbers(tmp_path: Path) -> None:
    answers_as_its_plain_numbers(tmp_path, write_mxfp4(tmp_path))


def test_a_gguf_in_mxfp4_answers_as_its_plain_numbers(tmp_path: Path) -> None:
    packed = write_gguf(oracle_of(NAME), tmp_path / "packed.gguf", matrix_type=MXFP4)
    with GgufFile(packed) as file:
        numbers = {
            name: gguf.quants.dequantize(file.read(tensor).reshape(*tensor.shape[:-1], -1), MXFP4)
            for name, tensor in file.tensors.items()
            if tensor.type is MXFP4
        }
    assert {values.ndim for values in numbers.values()} == {2, 3}
    plain = write_gguf(oracle_of(NAME), tmp_path / "plain.gguf", extra=numbers)
    logits = [logits_of(load_model(path, EngineConfig()), PROMPTS[0]) for path in (packed, plain)]
    assert torch.equal(*logits)


def test_a_window_pattern_in_a_gguf_goes_before_the_usual_one(tmp_path: Path) -> None:
    oracle = oracle_of(NAME, layer_types=["sliding_attention"] * 3)
    path = write_gguf(oracle, tmp_path / "m.gguf", numbers={"gpt-oss.attention.sliding_window_pattern": 0})
    logits = logits_of(load_model(path, EngineConfig()), PROMPTS[0])
    torch.testing.assert_close(logits, oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            {"num_local_experts": 3},
            "tensor 'model.layers.0.mlp.experts.gate_up_proj' has shape [4, 32, 128], more than",
        ),
        ({"num_local_experts": 5}, "in the file: 'model.layers.0.mlp.experts.gate_up_proj'"),
        ({"swiglu_limit": 0.0}, "swiglu_limit is 0.0, expected a positive number"),
        ({"layer_types": ["chunked_attention"] * 3}, "layer_types has 'chunked_attention'"),
        ({"sliding_window": 0}, "sliding_window is 0"),
    ],
)
def test_what_it_does_not_compute_is_refused_by_name(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = write_safetensors(oracle_of(NAME), tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    assert reason in refusal(tmp_path)


def test_mxfp4_parts_that_are_missing_are_named(tmp_path: Path) -> None:
    write_mxfp4(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.experts.down_proj_scales"]
    save_file(tensors, file)
    assert refusal(tmp_path) == "tensor 'model.layers.1.mlp.experts.down_proj_scales' is missing"


def test_a_gguf_without_sinks_is_refused(tmp_path: Path) -> None:
    path = write_gguf(oracle_of(NAME), tmp_path / "m.gguf", leave_out="blk.1.attn_sinks.weight")
    assert "is missing (in the file: 'blk.1.attn_sinks.weight')" in refusal(path)
    extra = {"blk.1.attn_sinks.weight": np.ones(5, np.float32)}
    assert "has shape [5], expected [4]" in refusal(write_gguf(oracle_of(NAME), tmp_path / "n.gguf", extra=extra))
