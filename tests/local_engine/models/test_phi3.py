"""Phi-3 and Phi-4 against transformers on random weights: their ropes, windows, and what of them is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import PROMPTS, answer_alike, logits_of, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_gguf, write_safetensors

PLAIN = {"rope_type": "default", "rope_theta": 1e4}
# Trained on 4 positions, run with 64: prompts of more than 4 tokens are long ones.
LONG: dict[str, Any] = {
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.5, 2.0, 4.0, 8.0],
        "original_max_position_embeddings": 4,
    },
    "original_max_position_embeddings": 4,
}
LONG_PROMPTS = [prompt for prompt in PROMPTS if len(prompt) > 4]


@pytest.mark.parametrize(
    "variant",
    [
        {"rope_parameters": PLAIN},
        {"rope_parameters": PLAIN | {"partial_rotary_factor": 0.75}, "hidden_size": 64},
        {"rope_parameters": PLAIN, "sliding_window": 5},
        {"rope_parameters": PLAIN, "num_key_value_heads": 4, "tie_word_embeddings": True},
    ],
    ids=["plain", "partly_turned", "window", "no_gqa_tied"],
)
def test_it_answers_as_transformers_from_both_formats_alone_and_batched(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    answer_alike(oracle_of("Phi3ForCausalLM", **variant), tmp_path)


def test_a_window_longer_than_the_trained_one_is_served_with_the_long_factors(tmp_path: Path) -> None:
    answer_alike(oracle_of("Phi3ForCausalLM", **LONG), tmp_path, prompts=LONG_PROMPTS)


@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_a_window_cut_to_the_trained_one_is_served_with_the_short_factors(kind: str, tmp_path: Path) -> None:
    oracle = oracle_of("Phi3ForCausalLM", **LONG)
    path = write_safetensors(oracle, tmp_path) if kind == "safetensors" else write_gguf(oracle, tmp_path / "m.gguf")
    short, long = (load_model(path, EngineConfig(max_context=context)) for context in (4, 5))
    tokens = PROMPTS[0][:4]
    assert logits_of(short, tokens).allclose(oracle.logits(tokens), atol=5e-4, rtol=1e-4)
    assert not logits_of(long, tokens).allclose(oracle.logits(tokens), atol=0.1)


def test_the_first_releases_words_for_longrope_mean_the_same(tmp_path: Path) -> None:
    oracle = oracle_of("Phi3ForCausalLM", **LONG)
    config = write_safetensors(oracle, tmp_path) / "config.json"
    values = json.loads(config.read_text())
    rope = values.pop("rope_parameters")
    factors = {name: rope[name] for name in ("short_factor", "long_factor")}
    config.write_text(json.dumps(values | {"rope_theta": 1e4, "rope_scaling": {"type": "su"} | factors}))
    ours = logits_of(load_model(tmp_path, EngineConfig()), PROMPTS[0])
    assert ours.allclose(oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"long_factor": [1.0]}, "rope has 1 factors for the 4 frequencies of 8 dimensions"),
        ({"long_factor": [1.0, 1.0, 1.0, 0]}, "rope long_factors is 0.0, expected a positive number"),
        ({"short_factor": [1.0, 1.0, 1.0, "1"]}, "short_factor is str, expected a number"),
        ({"short_factor": None}, "lacks short_factor or long_factor"),
        ({"partial_rotary_factor": 0.0}, "partial_rotary_factor is 0.0"),
        ({"partial_rotary_factor": 0.4}, "rope turns 3 of a head's 8 dimensions"),
        ({"attention_factor": -1}, "rope attention_factor is -1.0"),
        ({"original_max_position_embeddings": 0}, "rope original_max_context is 0"),
    ],
)
def test_an_impossible_rope_is_refused_by_name(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = write_safetensors(oracle_of("Phi3ForCausalLM", **LONG), tmp_path) / "config.json"
    values = json.loads(config.read_text())
    values["rope_parameters"] |= change
    config.write_text(json.dumps(values))
    assert reason in refusal(tmp_path)
