"""What files say about rotary embedding, the window that follows from it, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from local_engine.attention_config import AttentionKind, RopeConfig
from local_engine.config import ModelConfig
from local_engine.errors import ModelLoadError
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import gguf_rope, hf_rope, stretched_context

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
GGUF_YARN = {"qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.factor": 4.0}


def reader(values: dict[str, Any]) -> FieldReader:
    return FieldReader(Path("file"), values)


def test_yarn_reads_alike_in_both_formats_and_old_and_new_keys() -> None:
    new = hf_rope(reader({"rope_parameters": YARN | {"rope_theta": 1e6}}), 32768)
    old = hf_rope(reader({"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0}}), 32768)
    stored = gguf_rope(reader(GGUF_YARN | {"qwen2.rope.freq_base": 1e6}), "qwen2", 32768)
    assert new == old == stored
    assert new.attention_factor == pytest.approx(1.1386294)


@pytest.mark.parametrize(("max_context", "window"), [(32768, 131072), (40960, 131072), (262144, 262144)])
def test_yarn_stretches_the_window_of_a_file_that_gives_the_trained_one(max_context: int, window: int) -> None:
    assert stretched_context(hf_rope(reader({"rope_parameters": YARN}), max_context), max_context) == window


def test_other_scaling_leaves_the_window_as_the_file_has_it() -> None:
    linear = hf_rope(reader({"rope_parameters": {"rope_type": "linear", "factor": 4.0}}), 2048)
    assert stretched_context(linear, 2048) == 2048


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rope_type": "dynamic"}, "supported are default, linear, llama3, yarn, longrope and proportional"),
        ({"rope_type": "longrope"}, "lacks short_factor or long_factor"),
        ({"factor": None}, "factor is missing"),
    ],
)
def test_scaling_that_is_not_computed_is_refused_by_name(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        hf_rope(reader({"rope_parameters": YARN | change}), 32768)


@pytest.mark.parametrize("key", ["attn_factor", "yarn_ext_factor", "yarn_log_multiplier"])
def test_corrections_to_yarn_in_a_gguf_are_refused_by_the_key(key: str) -> None:
    with pytest.raises(ModelLoadError, match=f"qwen2.rope.scaling.{key} is not supported"):
        gguf_rope(reader(GGUF_YARN | {f"qwen2.rope.scaling.{key}": 1.0}), "qwen2", 32768)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"factor": float("inf")}, "rope factor is inf"),
        ({"factor": float("nan")}, "rope factor is nan"),
        ({"factor": 1e300}, None),
        ({"factor": 0}, "rope factor is 0"),
        ({"beta_fast": 1.0}, "must exceed beta_slow"),
        ({"beta_slow": 1e-320}, "must exceed beta_slow"),
        ({"beta_fast": 1e308}, "must exceed beta_slow"),
        ({"rope_theta": 1.0}, "yarn needs more than 1"),
        ({"original_max_position_embeddings": 0}, "rope original_max_context is 0"),
        ({"original_max_position_embeddings": 10**400}, "rope original_max_context is 1000"),
        ({"attention_factor": -1.0}, "rope attention_factor is -1.0"),
    ],
)
def test_impossible_numbers_of_yarn_are_named_and_crash_nothing(change: dict[str, Any], reason: str | None) -> None:
    rope = hf_rope(reader({"rope_parameters": YARN | change}), 64)
    problem = shape(rope).problem()
    assert problem is None if reason is None else problem is not None and reason in problem


def shape(rope: RopeConfig) -> ModelConfig:
    return ModelConfig(
        architecture="llama",
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        max_context=stretched_context(rope, 64),
        attention_kinds=(AttentionKind(rope=rope),),
    )
