"""Nemotron-H's other shapes: dense, experts over latent vectors, both kinds of blocks, files of the first version."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import PROMPTS, answer_alike, logits_of, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_safetensors

NAME = "NemotronHForCausalLM"
DENSE: Mapping[str, Any] = {
    "layers_block_type": ["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"]
}


@pytest.mark.parametrize(
    "variant",
    [DENSE, {**DENSE, "use_bias": True, "mlp_bias": True}, {"moe_latent_size": 20}],
    ids=["dense", "biases", "latent"],
)
def test_another_shape_answers_as_transformers_from_both_formats(variant: dict[str, Any], tmp_path: Path) -> None:
    answer_alike(oracle_of(NAME, **variant), tmp_path)


def test_dense_blocks_stand_among_sparse_ones(tmp_path: Path) -> None:
    oracle = oracle_of(NAME, layers_block_type=["moe", "mlp", "full_attention", "linear_attention", "mlp"])
    loaded = load_model(write_safetensors(oracle, tmp_path), EngineConfig())
    torch.testing.assert_close(logits_of(loaded, PROMPTS[0]), oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


def test_a_file_of_the_first_version_is_the_same_model(tmp_path: Path) -> None:
    oracle = oracle_of(NAME, **DENSE)
    config = write_safetensors(oracle, tmp_path) / "config.json"
    values = json.loads(config.read_text())
    for name in ("layers_block_type", "layer_types", "head_dim"):
        values.pop(name, None)
    older = {"hybrid_override_pattern": "M-M*-", "attention_head_dim": 16, "num_hidden_layers": 5}
    config.write_text(json.dumps(values | older))
    ours = logits_of(load_model(tmp_path, EngineConfig()), PROMPTS[0])
    torch.testing.assert_close(ours, oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"mlp_hidden_act": "silu"}, "mlp_hidden_act 'silu', expected 'relu2'"),
        ({"layers_block_type": ["conv"]}, "the pattern of layers has 'conv'"),
        ({"layers_block_type": ["mamba", "mlp"]}, "1 recurrent layers of 2, expected that some layers have attention"),
        ({"time_step_limit": [0.0, 0.5]}, "time_step_limit is [0.0, 0.5], supported is no limit"),
        ({"moe_latent_size": 1 << 21}, "the experts' latent size is 2097152"),
    ],
)
def test_what_cannot_be_is_refused_by_name(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = write_safetensors(oracle_of(NAME), tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    assert reason in refusal(tmp_path)
