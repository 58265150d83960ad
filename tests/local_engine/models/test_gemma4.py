"""Gemma 4, text, against transformers on random weights: the large dense one, and what published files say."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from local_engine.config import EngineConfig
from local_engine.kv_pool import kv_block_bytes
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import PROMPTS, answer_alike, logits_of, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import write_gguf, write_safetensors

SMALL, LARGE = "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"


def changed_config(folder: Path, **changes: Any) -> Path:
    """The folder, with keys of its config.json changed; None takes one out."""
    file = folder / "config.json"
    values = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
    return folder


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        (LARGE, {"enable_moe_block": False}),
        (LARGE, {"attention_k_eq_v": False, "enable_moe_block": False}),
        (SMALL, {"num_kv_shared_layers": 0, "use_double_wide_mlp": False}),
        (SMALL, {"num_kv_shared_layers": 3, "use_double_wide_mlp": False, "final_logit_softcapping": None}),
        (SMALL, {"sliding_window": 4096, "attention_k_eq_v": True}),
    ],
    ids=["dense", "values_of_their_own", "every_layer_has_a_cache", "no_wider_layers", "borrowed_keys_as_values"],
)
def test_it_answers_as_transformers_from_both_formats_alone_and_batched(
    name: str, variant: dict[str, Any], tmp_path: Path
) -> None:
    answer_alike(oracle_of(name, **variant), tmp_path)


def test_published_files_have_one_key_for_the_heads_of_all_layers_that_see_all(tmp_path: Path) -> None:
    oracle = oracle_of(SMALL, attention_k_eq_v=True, num_global_key_value_heads=1)
    folder = changed_config(
        write_safetensors(oracle, tmp_path), per_layer_config=None, global_head_dim=32, num_global_key_value_heads=1
    )
    ours = logits_of(load_model(folder, EngineConfig()), PROMPTS[0])
    torch.testing.assert_close(ours, oracle.logits(PROMPTS[0]), atol=5e-4, rtol=1e-4)


def test_keys_and_values_that_files_carry_for_layers_without_such_are_left_alone(tmp_path: Path) -> None:
    oracle = oracle_of(SMALL)
    folder = write_safetensors(oracle, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    for part in ("k_proj", "v_proj", "k_norm"):
        tensors[f"model.layers.5.self_attn.{part}.weight"] = torch.zeros(3)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    ours = logits_of(load_model(folder, EngineConfig()), PROMPTS[1])
    torch.testing.assert_close(ours, oracle.logits(PROMPTS[1]), atol=5e-4, rtol=1e-4)


def test_only_layers_with_keys_and_values_take_room_in_the_pool_each_as_its_heads_do(tmp_path: Path) -> None:
    config = EngineConfig(dtype="float32", block_size=4)
    shape = load_model(write_safetensors(oracle_of(SMALL), tmp_path), config).info.config
    assert shape.caching_layers == (0, 1, 2, 3)
    assert [shape.cache_of(layer) for layer in range(6)] == [0, 1, 2, 3, 2, 3]
    assert kv_block_bytes(shape, config) == 2 * 4 * 4 * (2 * 2 * 16 + 2 * 2 * 32)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention is 'all'; attention here is causal"),
        ({"vocab_size_per_layer_input": 64}, "vocab_size_per_layer_input differs from vocab_size"),
        ({"num_kv_shared_layers": 5}, "layers without keys and values have none of their kind before them"),
        ({"num_kv_shared_layers": 6}, "6 of 6 layers have no keys and values"),
        ({"num_kv_shared_layers": -1}, "-1 of 6 layers have no keys and values"),
        (
            {"per_layer_config": {"1": {"head_dim": 31}}},
            "head_dim is 31, rotary embedding needs an even one up to 4096",
        ),
        ({"per_layer_config": {"1": {"num_key_value_heads": 3}}}, "4 query heads do not divide over 3 kv heads"),
        ({"hidden_size_per_layer_input": -1}, "per_layer_size is -1, expected 0 to 65536"),
    ],
)
def test_what_it_does_not_do_is_refused_by_name(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    assert refusal(changed_config(write_safetensors(oracle_of(SMALL), tmp_path), **changes)) == reason


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        (
            {"gemma4.attention.shared_kv_layers": 1},
            "gemma4.feed_forward_length differs within the layers that have keys and values, or within the others",
        ),
        ({"gemma4.block_count": 5}, "gemma4.attention.head_count_kv has 6 items for 5 layers"),
    ],
)
def test_lists_of_a_gguf_that_do_not_fit_its_layers_are_refused(
    numbers: dict[str, int | float], reason: str, tmp_path: Path
) -> None:
    assert refusal(write_gguf(oracle_of(SMALL), tmp_path / "m.gguf", numbers=numbers)) == reason
