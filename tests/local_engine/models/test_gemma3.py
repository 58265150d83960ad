"""Gemma 3, text, against transformers on random weights: two ropes, windows, and older spellings of its keys."""

import json
from pathlib import Path
from typing import Any

import pytest

from local_engine.attention_config import RopeConfig
from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import PROMPTS, answer_alike, logits_of, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_gguf, write_safetensors

NAME = "Gemma3ForCausalLM"


@pytest.mark.parametrize(
    "variant",
    [
        {"rope_parameters": None},
        {"num_hidden_layers": 3},
        {"num_key_value_heads": 1, "final_logit_softcapping": 3.0},
        {"sliding_window": 4096},
    ],
    ids=["plain_ropes", "no_layer_that_sees_all", "logits_cap", "no_window_within_the_context"],
)
def test_it_answers_as_transformers_from_both_formats_alone_and_batched(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    answer_alike(oracle_of(NAME, **variant), tmp_path)


def test_older_files_with_two_base_frequencies_and_a_pattern_read_alike(tmp_path: Path) -> None:
    oracle = oracle_of(NAME)
    config = write_safetensors(oracle, tmp_path) / "config.json"
    values = json.loads(config.read_text())
    del values["rope_parameters"], values["layer_types"]
    older = {
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "sliding_window_pattern": 6,
    }
    config.write_text(json.dumps(values | older))
    ours = logits_of(load_model(tmp_path, EngineConfig()), PROMPTS[0])
    assert ours.allclose(oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


def test_a_gguf_may_name_the_local_frequency_the_scale_and_the_pattern(tmp_path: Path) -> None:
    numbers = {
        "gemma3.rope.freq_base_swa": 500.0,
        "gemma3.attention.scale": 0.125,
        "gemma3.attention.sliding_window_pattern": 2,
    }
    path = write_gguf(oracle_of(NAME), tmp_path / "m.gguf", numbers=numbers)
    config = load_model(path, EngineConfig()).info.config
    kinds = [config.attention_kinds[config.kind_of(index)] for index in range(4)]
    assert [kind.window for kind in kinds] == [5, None, 5, None]
    assert kinds[0].rope == RopeConfig(theta=500.0)
    assert kinds[1].rope == RopeConfig(theta=1e6, scaling="linear", factor=8.0)
    assert config.attention_scale == 0.125


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"layer_types": None, "sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        ({"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}}, "rope scaling 'dynamic'"),
        ({"rope_parameters": {"full_attention": 3}}, "full_attention is int, expected an object"),
        ({"rope_parameters": {"sliding_attention": {"rope_theta": 0}}}, "rope theta is 0.0"),
    ],
)
def test_what_it_does_not_compute_is_refused_by_name(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = write_safetensors(oracle_of(NAME), tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    assert reason in refusal(tmp_path)
