"""Granite 4 with Mamba's layers, dense and with experts, by all that every architecture proves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.models import test_every_architecture as every
from tests.local_engine.models.against_transformers import answer_alike, refusal
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import Oracle, write_gguf, write_safetensors

_MAMBA: Mapping[str, Any] = {
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
    "position_embedding_type": None,
    "mamba_expand": 1,
    "mamba_n_heads": 4,
    "mamba_d_state": 4,
    "mamba_n_groups": 2,
    "mamba_d_conv": 2,
    "mamba_chunk_size": 8,
}
_EXPERTS: Mapping[str, Any] = {"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 24}


def _oracle(**overrides: Any) -> Oracle:
    return oracle_of("GraniteMoeHybridForCausalLM", **{**_MAMBA, **overrides})


@pytest.fixture(
    scope="module",
    params=[(overrides, kind) for overrides in ({}, _EXPERTS) for kind in ("safetensors", "gguf")],
    ids=["dense-safetensors", "dense-gguf", "experts-safetensors", "experts-gguf"],
)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> every.Subject:
    overrides, kind = request.param
    folder: Path = tmp_path_factory.mktemp("granite")
    oracle = _oracle(**overrides)
    path = write_safetensors(oracle, folder) if kind == "safetensors" else write_gguf(oracle, folder / "model.gguf")
    return every.Subject(oracle, load_model(path, EngineConfig()))


test_its_logits_are_those_of_transformers = every.test_its_logits_are_those_of_transformers
test_alone_it_answers_as_transformers = every.test_alone_it_answers_as_transformers
test_batched_and_chunked_it_answers_the_same = every.test_batched_and_chunked_it_answers_the_same
test_preempted_it_answers_the_same = every.test_preempted_it_answers_the_same
test_behind_a_cached_prefix_it_answers_the_same = every.test_behind_a_cached_prefix_it_answers_the_same


def test_projections_with_biases_rope_and_no_bias_of_the_convolution(tmp_path: Path) -> None:
    overrides = {"position_embedding_type": "rope", "mamba_proj_bias": True, "mamba_conv_bias": False}
    answer_alike(_oracle(**overrides, mamba_d_conv=4), tmp_path)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"time_step_limit": (0.0, 0.5)}, "time_step_limit is [0.0, 0.5], supported is no limit"),
        ({"layer_types": ["linear_attention"] * 4}, "4 recurrent layers of 4"),
    ],
)
def test_what_is_not_computed_is_refused(overrides: dict[str, Any], reason: str, tmp_path: Path) -> None:
    assert reason in refusal(write_safetensors(_oracle(**overrides), tmp_path))
