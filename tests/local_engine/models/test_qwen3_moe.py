"""Qwen3-MoE against transformers' on random weights, and what of it is refused. See also test_every_architecture."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import PROMPTS, answer_alike, logits_of, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_gguf, write_safetensors

NAME = "Qwen3MoeForCausalLM"


@pytest.mark.parametrize("per_token", [1, 3, 6])
def test_it_answers_as_transformers_from_both_formats_alone_and_batched(per_token: int, tmp_path: Path) -> None:
    answer_alike(oracle_of(NAME, num_experts_per_tok=per_token), tmp_path)


@pytest.mark.parametrize(
    "variant",
    [
        {"norm_topk_prob": False},
        {"mlp_only_layers": [0, 2]},
        {"decoder_sparse_step": 2},
        {"decoder_sparse_step": 2, "mlp_only_layers": [1], "norm_topk_prob": False},
    ],
    ids=["not_normalised", "some_dense", "every_second", "none_sparse"],
)
def test_what_a_gguf_cannot_say_is_read_from_safetensors(variant: dict[str, Any], tmp_path: Path) -> None:
    oracle = oracle_of(NAME, **variant)
    loaded = load_model(write_safetensors(oracle, tmp_path), EngineConfig())
    torch.testing.assert_close(logits_of(loaded, PROMPTS[0]), oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


def test_a_gguf_may_say_that_weights_are_not_normalised(tmp_path: Path) -> None:
    oracle = oracle_of(NAME, norm_topk_prob=False)
    path = write_gguf(oracle, tmp_path / "m.gguf", numbers={"qwen3moe.expert_weights_norm": False})
    logits = logits_of(load_model(path, EngineConfig()), PROMPTS[0])
    torch.testing.assert_close(logits, oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("expert_gating_func", 4, "expert_gating_func is 4, supported are softmax and sigmoid"),
        ("expert_group_count", 8, "1 of 8 groups of 6 experts cannot be"),
        ("expert_shared_count", 1, "in the file: 'blk.0.ffn_gate_shexp.weight'"),
    ],
)
def test_a_gguf_of_experts_that_cannot_be_is_refused(key: str, value: float, reason: str, tmp_path: Path) -> None:
    path = write_gguf(oracle_of(NAME), tmp_path / "m.gguf", numbers={f"qwen3moe.{key}": value})
    assert reason in refusal(path)


@pytest.mark.parametrize("name", ["num_experts", "num_local_experts"])
def test_both_names_of_the_number_of_experts_are_read(name: str, tmp_path: Path) -> None:
    config = write_safetensors(oracle_of(NAME), tmp_path) / "config.json"
    values = json.loads(config.read_text())
    del values["num_local_experts"]
    config.write_text(json.dumps(values | {name: 6}))
    experts = load_model(tmp_path, EngineConfig()).info.config.experts
    assert experts is not None
    assert (experts.count, experts.per_token, experts.intermediate_size) == (6, 2, 24)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
        ({"mlp_only_layers": [1]}, "tensor 'model.layers.1.mlp.gate_proj.weight' is missing"),
        ({"moe_intermediate_size": 25}, "has shape [24, 32], expected [25, 32]"),
    ],
)
def test_experts_that_cannot_be_are_refused_by_name(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = write_safetensors(oracle_of(NAME), tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    assert reason in refusal(tmp_path)
