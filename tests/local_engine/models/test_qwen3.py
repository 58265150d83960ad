"""Dense Qwen3 against transformers' on random weights, and what of it is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import answer_alike, refusal
from tests.local_engine.tiny_models import tiny_oracle, write_gguf, write_safetensors


@pytest.mark.parametrize(
    "variant",
    [{"head_dim": 8}, {"head_dim": 16, "tie_word_embeddings": True}, {"head_dim": 4, "attention_bias": True}, {}],
    ids=["plain", "wide_heads_tied", "narrow_heads_biases", "head_size_of_its_own"],
)
def test_it_answers_as_transformers_from_both_formats_alone_and_batched(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    answer_alike(tiny_oracle(seed=12, kind="qwen3", **variant), tmp_path)


def test_a_head_size_that_config_json_leaves_out_is_128(tmp_path: Path) -> None:
    oracle = tiny_oracle(seed=12, kind="qwen3")
    config = write_safetensors(oracle, tmp_path / "model") / "config.json"
    values = json.loads(config.read_text())
    assert values.pop("head_dim") == 128
    config.write_text(json.dumps(values))
    assert load_model(tmp_path / "model", EngineConfig()).info.config.head_dim == 128


def test_a_gguf_with_a_window_of_unknown_layers_is_refused_by_the_key(tmp_path: Path) -> None:
    key = "qwen3.attention.sliding_window"
    path = write_gguf(tiny_oracle(kind="qwen3"), tmp_path / "m.gguf", numbers={key: 4})
    assert refusal(path).startswith(f"{key}: ")


def test_a_gguf_without_a_norm_of_the_heads_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tiny_oracle(kind="qwen3"), tmp_path / "m.gguf", leave_out="blk.1.attn_k_norm.weight")
    assert "tensor 'model.layers.1.self_attn.k_norm.weight' is missing" in refusal(path)
