"""Falcon-H1's other shapes, biases among its factors, and what of it is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import PROMPTS, answer_alike, logits_of, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_safetensors

NAME = "FalconH1ForCausalLM"
NORMED = {"mamba_rms_norm": True, "mamba_norm_before_gate": False}


@pytest.mark.parametrize(
    "variant", [NORMED, {"mlp_multipliers": None, "ssm_multipliers": None}], ids=["normed", "without_lists"]
)
def test_another_shape_answers_as_transformers_from_both_formats(variant: dict[str, Any], tmp_path: Path) -> None:
    answer_alike(oracle_of(NAME, **variant), tmp_path)


def test_a_factor_on_what_is_read_leaves_the_bias(tmp_path: Path) -> None:
    biases = {"attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True, "projectors_bias": True}
    oracle = oracle_of(NAME, **biases, mamba_conv_bias=False)
    loaded = load_model(write_safetensors(oracle, tmp_path), EngineConfig())
    torch.testing.assert_close(logits_of(loaded, PROMPTS[0]), oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"mamba_rms_norm": True, "mamba_norm_before_gate": True}, "mamba_norm_before_gate is true"),
        ({"mamba_proj_bias": True}, "mamba_proj_bias and projectors_bias differ"),
        ({"mlp_multipliers": [1.0]}, "mlp_multipliers has 1 items, expected 2"),
        ({"ssm_multipliers": [1.0, 1.0, 0.0, 1.0, 1.0]}, "ssm_multipliers is 0, expected a number from 2^-20"),
        ({"key_multiplier": 1e30}, "key_multiplier is 1e+30, expected a number from 2^-20"),
        ({"embedding_multiplier": -1.0}, "embedding_scale is -1.0, expected a positive number"),
        ({"mamba_d_ssm": 20}, "has 68 rows, expected 60"),
    ],
)
def test_what_cannot_be_is_refused_by_name(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = write_safetensors(oracle_of(NAME), tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    assert reason in refusal(tmp_path)
