"""Mistral against transformers' on random weights; its window with the prefix cache and with preemption."""

import json
from pathlib import Path
from typing import Any

import pytest

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import config_with_blocks, generate, last, request, run, small_config, tokens_of
from tests.local_engine.models.against_transformers import PROMPTS, answer_alike, refusal
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_gguf, write_safetensors

GREEDY = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
WINDOW = 6


@pytest.fixture(scope="module")
def windowed() -> Oracle:
    return tiny_oracle(seed=13, kind="mistral", sliding_window=WINDOW)


@pytest.fixture(scope="module")
def windowed_model(windowed: Oracle, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(write_safetensors(windowed, tmp_path_factory.mktemp("mistral") / "model"), EngineConfig())


@pytest.mark.parametrize(
    "variant",
    [
        {"sliding_window": None},
        {"sliding_window": 1},
        {"sliding_window": 4},
        {"sliding_window": 7, "tie_word_embeddings": True},
        {"sliding_window": 4096, "head_dim": 16},
    ],
    ids=["no_window", "itself_alone", "one_block", "seven_tied", "wider_than_the_context"],
)
def test_it_answers_as_transformers_from_both_formats_alone_and_batched(
    variant: dict[str, Any], tmp_path: Path
) -> None:
    answer_alike(tiny_oracle(seed=13, kind="mistral", **variant), tmp_path)


def test_the_window_changes_the_answer(windowed: Oracle) -> None:
    unlimited = tiny_oracle(seed=13, kind="mistral", sliding_window=None)
    assert unlimited.greedy(PROMPTS[0], 16) != windowed.greedy(PROMPTS[0], 16)


def test_behind_a_cached_prefix_it_answers_the_same(windowed: Oracle, windowed_model: LoadedModel) -> None:
    engine = Engine(windowed_model, small_config(max_batch_tokens=5))
    turns = [*PROMPTS[0]]
    for cached_tokens in (0, 32):
        (outcome,) = generate(engine, [request(turns, GREEDY)])
        assert tokens_of(outcome) == windowed.greedy(turns, 16)
        assert last(outcome).cached_tokens == cached_tokens
        turns += [*tokens_of(outcome), 40]


def test_preempted_sequences_answer_the_same(windowed: Oracle, windowed_model: LoadedModel) -> None:
    engine = Engine(windowed_model, config_with_blocks(windowed_model, 14))
    sequences = [engine.add(request(prompt, GREEDY)) for prompt in PROMPTS]
    outcomes = run(engine)
    assert engine.stats().preemptions > 0
    assert [tokens_of(outcomes[each]) for each in sequences] == [windowed.greedy(prompt, 16) for prompt in PROMPTS]


def test_a_window_that_config_json_leaves_out_is_4096_and_null_is_none(windowed: Oracle, tmp_path: Path) -> None:
    config = write_safetensors(windowed, tmp_path) / "config.json"
    values = json.loads(config.read_text())
    config.write_text(json.dumps(values | {"sliding_window": None}))
    assert load_model(tmp_path, EngineConfig()).info.config.windows == (None,)
    del values["sliding_window"]
    config.write_text(json.dumps(values))
    assert load_model(tmp_path, EngineConfig()).info.config.windows == (4096,)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types has 'full_attention'"),
        ({"layer_types": ["sliding_attention"] * 2, "sliding_window": None}, "layer_types has 'sliding_attention'"),
        ({"sliding_window": 0}, "sliding_window is 0, expected 1 to"),
        ({"sliding_window": "4"}, "sliding_window is str, expected an integer"),
    ],
)
def test_windows_that_it_does_not_compute_are_refused_by_name(
    values: dict[str, Any], reason: str, windowed: Oracle, tmp_path: Path
) -> None:
    config = write_safetensors(windowed, tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    assert reason in refusal(tmp_path)


def test_a_gguf_with_a_pattern_of_windows_is_refused_by_the_key(windowed: Oracle, tmp_path: Path) -> None:
    key = "llama.attention.sliding_window_pattern"
    assert refusal(write_gguf(windowed, tmp_path / "m.gguf", numbers={key: 2})).startswith(f"{key}: ")
