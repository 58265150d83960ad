"""Our Llama against transformers' on random weights: every variant of shape, both file formats."""

from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.loading.load import load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import generate, request, small_config, tokens_of
from tests.local_engine.models.against_transformers import logits_of
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_gguf, write_safetensors

YARN_ROPE = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}

PROMPT = [3, 17, 99, 42, 5, 64, 23, 8, 111, 2, 77]
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"head_dim": 16},
        {"attention_bias": True, "mlp_bias": True},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}},
        {"rope_parameters": LLAMA3_ROPE},
        {"rope_parameters": YARN_ROPE},
        {"rope_parameters": YARN_ROPE | {"attention_factor": 0.7}, "head_dim": 16},
        {"rope_parameters": YARN_ROPE | {"mscale": 2.0, "mscale_all_dim": 0.5}},
        {"rope_parameters": YARN_ROPE | {"beta_fast": 2.0, "beta_slow": 0.5}, "head_dim": 16},
    ],
    ids=[
        "plain",
        "tied",
        "no_gqa",
        "one_kv_head",
        "wide_heads",
        "biases",
        "linear_rope",
        "llama3_rope",
        "yarn_rope",
        "yarn_attention_factor",
        "yarn_mscale",
        "yarn_betas",
    ],
)
def test_logits_and_greedy_tokens_equal_those_of_transformers(variant: dict[str, Any], tmp_path: Path) -> None:
    oracle = tiny_oracle(seed=5, **variant)
    loaded = load_model(write_safetensors(oracle, tmp_path), EngineConfig())
    torch.testing.assert_close(logits_of(loaded, PROMPT), oracle.logits(PROMPT), atol=2e-4, rtol=1e-4)
    (outcome,) = generate(Engine(loaded, small_config()), [request(PROMPT, GREEDY)])
    assert tokens_of(outcome) == oracle.greedy(PROMPT, 12)


@pytest.mark.parametrize("tied", [False, True])
def test_a_gguf_gives_the_logits_of_the_model_it_was_made_from(tied: bool, tmp_path: Path) -> None:
    oracle = tiny_oracle(seed=6, tie_word_embeddings=tied)
    loaded = load_model(write_gguf(oracle, tmp_path / "m.gguf"), EngineConfig())
    torch.testing.assert_close(logits_of(loaded, PROMPT), oracle.logits(PROMPT), atol=2e-4, rtol=1e-4)


def test_an_eight_bit_gguf_gives_nearly_the_logits_of_its_source(tmp_path: Path) -> None:
    oracle = tiny_oracle(seed=6)
    path = write_gguf(oracle, tmp_path / "m.gguf", matrix_type=gguf.GGMLQuantizationType.Q8_0)
    ours = torch.log_softmax(logits_of(load_model(path, EngineConfig()), PROMPT), -1)
    theirs = torch.log_softmax(oracle.logits(PROMPT), -1)
    divergence = float((theirs.exp() * (theirs - ours)).sum(-1).mean())
    assert 0 < divergence < 0.02


def test_both_file_formats_give_the_same_tokens(oracle: Oracle, tiny_folder: Path, tiny_gguf: Path) -> None:
    answers = []
    for path in (tiny_folder, tiny_gguf):
        (outcome,) = generate(Engine(load_model(path, EngineConfig()), small_config()), [request(PROMPT, GREEDY)])
        answers.append(tokens_of(outcome))
    assert answers[0] == answers[1] == oracle.greedy(PROMPT, 12)


def test_bfloat16_weights_give_the_same_first_token(tiny_folder: Path, oracle: Oracle) -> None:
    loaded = load_model(tiny_folder, EngineConfig(dtype="bfloat16"))
    (outcome,) = generate(
        Engine(loaded, EngineConfig(dtype="bfloat16", kv_bytes=1 << 20)),
        [request(PROMPT, SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True))],
    )
    assert tokens_of(outcome) == oracle.greedy(PROMPT, 1)


def test_the_gguf_rope_factors_divide_the_frequencies(tmp_path: Path) -> None:
    oracle = tiny_oracle(seed=7, rope_parameters=LLAMA3_ROPE)
    inverse = oracle.model.model.rotary_emb.inv_freq
    plain = 1.0 / 10000.0 ** (torch.arange(0, 8, 2) / 8)
    path = write_gguf(oracle, tmp_path / "m.gguf", extra={"rope_freqs.weight": (plain / inverse).numpy()})
    torch.testing.assert_close(
        logits_of(load_model(path, EngineConfig()), PROMPT), oracle.logits(PROMPT), atol=2e-4, rtol=1e-4
    )
