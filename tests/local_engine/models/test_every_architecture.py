"""Every row of the registry against transformers, however the engine comes to its answer, from both file formats.

A new row is proved by its entry in `tiny_oracles`; one that reads images by `test_every_image_model`.
"""

from functools import lru_cache
from pathlib import Path

import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import config_with_blocks, generate, last, request, small_config, tokens_of
from tests.local_engine.models.against_transformers import PROMPTS, logits_of
from tests.local_engine.models.tiny_oracles import TEXT_ARCHITECTURES, TINY_ORACLES, oracle_of
from tests.local_engine.tiny_models import VOCAB_SIZE, Oracle, tiny_oracle, write_gguf, write_safetensors

GREEDY = SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True)


_oracle = lru_cache(maxsize=1)(oracle_of)  # for both formats


def test_every_row_has_an_oracle() -> None:
    assert set(TEXT_ARCHITECTURES) <= TINY_ORACLES.keys()


def test_a_guess_changes_nothing_of_what_the_oracle_says() -> None:
    expected = tiny_oracle().greedy(PROMPTS[0], 6)
    wrong = [(token + 1) % VOCAB_SIZE for token in expected]
    for guess in (
        [],
        wrong,
        expected[:2] + wrong[2:],
        wrong[:2] + expected[2:],
        expected[:3],
        [*expected, 1],
        expected,
    ):
        assert tiny_oracle().greedy(PROMPTS[0], 6, guess=guess) == expected


class Subject:
    """A model under test: transformers' answers, and our load of the file that was made from it."""

    def __init__(self, oracle: Oracle, loaded: LoadedModel) -> None:
        self.oracle = oracle
        self.loaded = loaded
        guesses = self.answers(Engine(loaded, small_config()))
        self.expected = [oracle.greedy(prompt, 14, guess=guess) for prompt, guess in zip(PROMPTS, guesses, strict=True)]

    def answers(self, engine: Engine) -> list[list[int]]:
        """To all prompts, added at once."""
        return [tokens_of(outcome) for outcome in generate(engine, [request(prompt, GREEDY) for prompt in PROMPTS])]


@pytest.fixture(
    scope="module",
    params=[(name, kind) for name in TEXT_ARCHITECTURES for kind in ("safetensors", "gguf")],
    ids="-".join,
)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    name, kind = request.param
    folder: Path = tmp_path_factory.mktemp(name)
    oracle = _oracle(name)
    path = write_safetensors(oracle, folder) if kind == "safetensors" else write_gguf(oracle, folder / "model.gguf")
    return Subject(oracle, load_model(path, EngineConfig()))


def test_its_logits_are_those_of_transformers(subject: Subject) -> None:
    for prompt in PROMPTS:
        expected = subject.oracle.logits(prompt)
        torch.testing.assert_close(logits_of(subject.loaded, prompt), expected, atol=5e-4, rtol=1e-4)


def test_alone_it_answers_as_transformers(subject: Subject) -> None:
    for prompt, expected in zip(PROMPTS, subject.expected, strict=True):
        (outcome,) = generate(Engine(subject.loaded, small_config()), [request(prompt, GREEDY)])
        assert tokens_of(outcome) == expected


@pytest.mark.parametrize("budget", [64, 7, 4])
def test_batched_and_chunked_it_answers_the_same(subject: Subject, budget: int) -> None:
    assert subject.answers(Engine(subject.loaded, small_config(max_batch_tokens=budget))) == subject.expected


def test_preempted_it_answers_the_same(subject: Subject) -> None:
    engine = Engine(subject.loaded, config_with_blocks(subject.loaded, 12, max_batch_tokens=16))
    assert subject.answers(engine) == subject.expected
    assert engine.stats().preemptions > 0


def test_behind_a_cached_prefix_it_answers_the_same(subject: Subject) -> None:
    engine = Engine(subject.loaded, small_config(max_batch_tokens=5))
    turns = [*PROMPTS[0]]
    for cached_tokens in (0, 32):
        (outcome,) = generate(engine, [request(turns, GREEDY)])
        answer = tokens_of(outcome)
        assert answer == subject.oracle.greedy(turns, 14, guess=answer)
        assert last(outcome).cached_tokens == cached_tokens
        turns += [*answer, 40]
