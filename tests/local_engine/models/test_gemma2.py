"""Gemma 2 against transformers on random weights: caps, windows, scales, and what of it is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import PROMPTS, answer_alike, logits_of, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_gguf, write_safetensors

NAME = "Gemma2ForCausalLM"


@pytest.mark.parametrize(
    "variant",
    [
        {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        {"head_dim": 8, "query_pre_attn_scalar": 8, "num_key_value_heads": 4},
        {"sliding_window": 4096},
        {"num_key_value_heads": 1, "sliding_window": 1},
    ],
    ids=["caps_as_published", "no_gqa", "no_window_within_the_context", "window_of_itself"],
)
def test_it_answers_as_transformers_from_both_formats_alone_and_batched(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    answer_alike(oracle_of(NAME, **variant), tmp_path)


@pytest.mark.parametrize(
    "variant",
    [
        {"query_pre_attn_scalar": 5},
        {"attn_logit_softcapping": None, "final_logit_softcapping": None},
        {"layer_types": ["full_attention", "full_attention", "sliding_attention"]},
        {"attention_bias": True},
    ],
    ids=["scale_of_its_own", "no_caps", "layers_by_name", "biases"],
)
def test_what_only_config_json_can_say_is_computed_as_transformers_does(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    oracle = oracle_of(NAME, **variant)
    ours = logits_of(load_model(write_safetensors(oracle, tmp_path), EngineConfig()), PROMPTS[0])
    assert ours.allclose(oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


def test_keys_that_config_json_leaves_out_mean_what_transformers_takes_them_for(tmp_path: Path) -> None:
    config_file = write_safetensors(oracle_of(NAME), tmp_path) / "config.json"
    values = json.loads(config_file.read_text())
    for name in (
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "sliding_window",
        "query_pre_attn_scalar",
        "layer_types",
        "tie_word_embeddings",
    ):
        del values[name]
    config_file.write_text(json.dumps(values))
    config = load_model(tmp_path, EngineConfig()).info.config
    assert (config.attention_soft_cap, config.logits_soft_cap, config.attention_scale) == (50.0, 30.0, 1 / 16)
    assert [config.attention_kinds[config.kind_of(index)].window for index in range(3)] == [4096, None, 4096]
    assert config.tie_embeddings


@pytest.mark.parametrize(("layers", "scale"), [(46, (32 / 4) ** -0.5), (45, 16**-0.5)])
def test_a_gguf_of_as_many_layers_as_the_27b_model_scales_as_it_does(layers: int, scale: float, tmp_path: Path) -> None:
    oracle = oracle_of(NAME, num_hidden_layers=layers, intermediate_size=8)
    config = load_model(write_gguf(oracle, tmp_path / "m.gguf"), EngineConfig()).info.config
    assert config.attention_scale == pytest.approx(scale)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"hidden_activation": "gelu"}, "hidden_activation 'gelu', expected 'gelu_pytorch_tanh'"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention is true"),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0.0"),
        ({"attn_logit_softcapping": -1.0}, "attention_soft_cap is -1.0"),
        ({"final_logit_softcapping": 0}, "logits_soft_cap is 0.0"),
        ({"sliding_window": -3}, "sliding_window is -3"),
        ({"num_hidden_layers": 10**15, "layer_types": None}, "num_layers is 1000000000000000"),
    ],
)
def test_what_it_does_not_compute_is_refused_by_name(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = write_safetensors(oracle_of(NAME), tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    assert reason in refusal(tmp_path)


def test_a_gguf_without_a_norm_is_refused_by_name(tmp_path: Path) -> None:
    path = write_gguf(oracle_of(NAME), tmp_path / "m.gguf", leave_out="blk.1.post_ffw_norm.weight")
    assert "tensor 'model.layers.1.post_feedforward_layernorm.weight' is missing" in refusal(path)
