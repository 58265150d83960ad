"""Mixtral against transformers' on random weights, and what of it is refused. See also test_every_architecture."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models.against_transformers import answer_alike, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import tiny_oracle, write_gguf, write_safetensors

NAME = "MixtralForCausalLM"


@pytest.mark.parametrize(
    "variant",
    [{"num_experts_per_tok": 1}, {"num_experts_per_tok": 4, "sliding_window": None}, {"num_local_experts": 9}],
    ids=["one_expert", "all_experts", "nine_experts"],
)
def test_it_answers_as_transformers_from_both_formats_alone_and_batched(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    answer_alike(oracle_of(NAME, **variant), tmp_path)


def test_a_gguf_of_llama_with_experts_is_mixtral_and_without_is_llama(tmp_path: Path) -> None:
    sparse = load_model(write_gguf(oracle_of(NAME), tmp_path / "a.gguf"), EngineConfig())
    dense = load_model(write_gguf(tiny_oracle(), tmp_path / "b.gguf"), EngineConfig())
    assert (sparse.info.config.architecture, dense.info.config.architecture) == ("mixtral", "llama")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"num_local_experts": 0}, "the number of experts is 0"),
        ({"num_local_experts": 1 << 14, "num_hidden_layers": 4000}, "expected at most 131072"),
        ({"num_experts_per_tok": 5}, "the number of experts per token is 5, expected 1 to 4"),
        ({"num_local_experts": 5}, "tensor 'model.layers.0.block_sparse_moe.experts.4.w1.weight' is missing"),
        ({"num_local_experts": 3}, "tensor 'model.layers.0.block_sparse_moe.gate.weight' has shape [4, 32]"),
    ],
)
def test_experts_that_cannot_be_are_refused_by_name(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    config = write_safetensors(oracle_of(NAME), tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    assert reason in refusal(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"leave_out": "blk.1.ffn_up_exps.weight"}, "is missing (in the file: 'blk.1.ffn_up_exps.weight')"),
        (
            {"extra": {"blk.1.ffn_up_exps.weight": np.ones((5, 64, 32), np.float32)}},
            "tensor 'blk.1.ffn_up_exps.weight' has shape [5, 64, 32], more than this architecture uses",
        ),
        (
            {"extra": {"blk.1.ffn_up_exps.weight": np.ones((4, 32, 64), np.float32)}},
            "has shape [32, 64], expected [64, 32] (in the file: 'blk.1.ffn_up_exps.weight')",
        ),
        ({"extra": {"blk.0.ffn_gate_inp.bias": np.ones(4, np.float32)}}, "has no place in this architecture"),
    ],
)
def test_tensors_of_a_gguf_that_do_not_fit_are_named(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    assert reason in refusal(write_gguf(oracle_of(NAME), tmp_path / "m.gguf", **change))
