"""Qwen2 against transformers' on random weights, and what of it is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.local_engine.models.against_transformers import answer_alike, refusal
from tests.local_engine.tiny_models import tiny_oracle, write_gguf, write_safetensors

YARN_ROPE = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 1, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
        {"rope_parameters": YARN_ROPE},
    ],
    ids=["plain", "tied", "one_kv_head", "yarn"],
)
def test_it_answers_as_transformers_from_both_formats_alone_and_batched(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    answer_alike(tiny_oracle(seed=11, kind="qwen2", **variant), tmp_path)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"use_sliding_window": True}, "use_sliding_window is true"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types has 'sliding_attention'"),
        ({"layer_types": "full_attention"}, "layer_types is str, expected a list of strings"),
        ({"rope_parameters": {"type": "mrope", "mrope_section": [1, 1, 2]}}, "mrope"),
        ({"rope_parameters": {"type": "default", "mrope_section": [1, 1, 2]}}, "mrope"),
    ],
)
def test_what_it_does_not_compute_is_refused_by_name(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = write_safetensors(tiny_oracle(kind="qwen2"), tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    assert reason in refusal(tmp_path)


def test_a_gguf_without_the_biases_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tiny_oracle(kind="qwen2"), tmp_path / "m.gguf", leave_out="blk.0.attn_q.bias")
    assert "tensor 'model.layers.0.self_attn.q_proj.bias' is missing" in refusal(path)


@pytest.mark.parametrize("key", ["qwen2.rope.dimension_sections", "qwen2.attention.sliding_window"])
def test_a_gguf_with_mrope_or_a_window_is_refused_by_the_key(key: str, tmp_path: Path) -> None:
    path = write_gguf(tiny_oracle(kind="qwen2"), tmp_path / "m.gguf", numbers={key: 4})
    assert refusal(path).startswith(f"{key}: ")
