"""SmolLM3 against transformers on random weights: layers without rope, and windows on them."""

import json
from pathlib import Path
from typing import Any

import pytest

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import PROMPTS, answer_alike, logits_of, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_safetensors

NAME = "SmolLM3ForCausalLM"


@pytest.mark.parametrize(
    "variant",
    [{"num_hidden_layers": 3}, {"num_hidden_layers": 8, "tie_word_embeddings": True}, {"num_key_value_heads": 4}],
    ids=["rope_everywhere", "two_layers_without_tied", "no_gqa"],
)
def test_it_answers_as_transformers_from_both_formats_alone_and_batched(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    answer_alike(oracle_of(NAME, **variant), tmp_path)


@pytest.mark.parametrize(
    "variant",
    [
        {"no_rope_layers": [0, 1, 0, 1, 1]},
        {"no_rope_layer_interval": 2},
        {"use_sliding_window": True, "sliding_window": 4, "no_rope_layer_interval": 2},
        {"use_sliding_window": True, "sliding_window": 4, "layer_types": ["sliding_attention"] * 5},
        {"rope_parameters": None},
    ],
    ids=["layers_by_number", "interval", "windows_without_rope", "windows_by_name", "theta_left_out"],
)
def test_what_only_config_json_can_say_is_computed_as_transformers_does(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    oracle = oracle_of(NAME, **variant)
    ours = logits_of(load_model(write_safetensors(oracle, tmp_path), EngineConfig()), PROMPTS[0])
    assert ours.allclose(oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize("values", [{}, {"no_rope_layer_interval": None}])
def test_a_file_without_a_list_of_layers_has_rope_on_three_of_four(values: dict[str, Any], tmp_path: Path) -> None:
    oracle = oracle_of(NAME)
    config = write_safetensors(oracle, tmp_path) / "config.json"
    left_out = {"no_rope_layers": None, "layer_types": None}
    config.write_text(json.dumps(json.loads(config.read_text()) | left_out | values))
    ours = logits_of(load_model(tmp_path, EngineConfig()), PROMPTS[0])
    assert ours.allclose(oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"no_rope_layers": [1, 1]}, "no_rope_layers has 2 items for 5 layers"),
        ({"no_rope_layers": ["1"] * 5}, "no_rope_layers holds str, expected integers"),
        ({"layer_types": ["sliding_attention"] * 5}, "layer_types has 'sliding_attention', but the model has no"),
        ({"no_rope_layers": None, "no_rope_layer_interval": 0}, "no_rope_layer_interval is 0"),
    ],
)
def test_layers_that_cannot_be_are_refused_by_name(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = write_safetensors(oracle_of(NAME), tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    assert reason in refusal(tmp_path)
