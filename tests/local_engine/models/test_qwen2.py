"""Qwen2 against transformers' on random weights, its windows, and what of it is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import answer_alike, refusal
from tests.local_engine.tiny_models import tiny_oracle, write_gguf, write_safetensors

YARN_ROPE = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
WINDOWED = {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}
SLIDING = {"use_sliding_window": True, "sliding_window": 4, "layer_types": ["sliding_attention"] * 2}


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 1, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
        {"rope_parameters": YARN_ROPE},
        WINDOWED,
        WINDOWED | {"max_window_layers": 0},
        WINDOWED | {"max_window_layers": 3},
        WINDOWED | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ],
    ids=["plain", "tied", "one_kv_head", "yarn", "upper_layers", "all_layers", "no_layers", "layers_by_name"],
)
def test_it_answers_as_transformers_from_both_formats_alone_and_batched(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    answer_alike(tiny_oracle(seed=11, kind="qwen2", **variant), tmp_path)


@pytest.mark.parametrize(("first", "windows"), [(0, [4] * 3), (1, [None, 4, 4]), (3, [None] * 3), (None, [None] * 3)])
def test_a_file_without_layer_types_has_windows_from_max_window_layers_on(
    first: int | None, windows: list[int | None], tmp_path: Path
) -> None:
    file = write_safetensors(tiny_oracle(kind="qwen2", **WINDOWED), tmp_path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"layer_types": None, "max_window_layers": first}))
    config = load_model(tmp_path, EngineConfig()).info.config
    assert [config.attention_kinds[config.kind_of(index)].window for index in range(3)] == windows


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types has 'sliding_attention', but the"),
        (SLIDING | {"layer_types": ["full_attention", "chunked"]}, "layer_types has 'chunked', supported"),
        (SLIDING | {"layer_types": ["full_attention"]}, "layer_types has 1 items for 2 layers"),
        (SLIDING | {"sliding_window": 0}, "sliding_window is 0, expected 1"),
        ({"layer_types": "full_attention"}, "layer_types is str, expected a list of strings"),
        ({"rope_parameters": {"type": "mrope", "mrope_section": [1, 1, 3]}}, "mrope's sections are [1, 1, 3]"),
        ({"rope_parameters": {"type": "mrope", "mrope_section": [4]}}, "mrope's sections are [4], expected three"),
        ({"rope_parameters": {"type": "mrope", "mrope_section": [5, -2, 1]}}, "mrope's sections are [5, -2, 1]"),
    ],
)
def test_what_it_does_not_compute_is_refused_by_name(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = write_safetensors(tiny_oracle(kind="qwen2"), tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    assert reason in refusal(tmp_path)


def test_a_gguf_without_the_biases_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tiny_oracle(kind="qwen2"), tmp_path / "m.gguf", leave_out="blk.0.attn_q.bias")
    assert "tensor 'model.layers.0.self_attn.q_proj.bias' is missing" in refusal(path)


def test_a_gguf_with_a_window_of_unknown_layers_is_refused_by_the_key(tmp_path: Path) -> None:
    key = "qwen2.attention.sliding_window"
    path = write_gguf(tiny_oracle(kind="qwen2"), tmp_path / "m.gguf", numbers={key: 4})
    assert refusal(path).startswith(f"{key}: ")


def test_a_gguf_whose_sections_of_mrope_cannot_be_is_refused(tmp_path: Path) -> None:
    numbers = {"qwen2.rope.dimension_sections": 4}
    path = write_gguf(tiny_oracle(kind="qwen2"), tmp_path / "m.gguf", numbers=numbers)
    assert "mrope's sections are [4], expected three that make 4" in refusal(path)


@pytest.mark.parametrize(
    ("pattern", "windows"),
    [(0, [4, 4, 4, 4]), (1, [None] * 4), (2, [4, None, 4, None]), (3, [4, 4, None, 4])],
)
def test_a_gguf_may_give_the_pattern_of_windows_as_a_period(
    pattern: int, windows: list[int | None], tmp_path: Path
) -> None:
    numbers = {"qwen2.attention.sliding_window": 4, "qwen2.attention.sliding_window_pattern": pattern}
    path = write_gguf(tiny_oracle(kind="qwen2", num_hidden_layers=4), tmp_path / "m.gguf", numbers=numbers)
    config = load_model(path, EngineConfig()).info.config
    assert [config.attention_kinds[config.kind_of(index)].window for index in range(4)] == windows


def test_a_pattern_of_windows_for_another_number_of_layers_is_refused(tmp_path: Path) -> None:
    oracle = tiny_oracle(kind="qwen2", **WINDOWED)
    oracle.model.config.layer_types = ["full_attention"]
    assert "sliding_window_pattern has 1 items for 3 layers" in refusal(write_gguf(oracle, tmp_path / "m.gguf"))
