"""Every model that reads images against transformers, however the engine comes to its answer."""

from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import InvalidInput
from local_engine.kernels.cpu.executor import CpuExecutor
from local_engine.loading.load import LoadedModel, load_model
from local_engine.models.registry import ARCHITECTURES
from local_engine.sampling import SamplingParams
from local_engine.torch_executor import TorchExecutor
from tests.local_engine.engine_driver import Outcome, last, run, small_config, tokens_of
from tests.local_engine.models.tiny_image_oracles import (
    IMAGE,
    TINY_IMAGE_ORACLES,
    TOKENS,
    ImageOracle,
    ImagePrompt,
    image_oracle,
    pixels_of,
)

COUNT = 10
GREEDY = SamplingParams(temperature=0.0, max_tokens=COUNT, ignore_eos=True, logit_bias={IMAGE: -100.0})
ONE, OTHER, THIRD = (pixels_of(seed) for seed in (1, 2, 3))
exact_config = partial(small_config, kv_dtype="float32")
PROMPTS = (
    ImagePrompt([3, 17, 99, 101, ONE, 102, 64, 23, 8, 101, OTHER, 102, 31, 90]),
    ImagePrompt([3, 17, 99, 101, OTHER, 102, 64, 23]),
    ImagePrompt([101, THIRD]),
    ImagePrompt([44, 9, 81, 60, 61, 62, 14, 15]),
)
OF_ANY_SIZE = (
    ImagePrompt([3, 101, pixels_of(4, 16, 40), 102, 64, 23, 8, 101, pixels_of(5, 24, 8), 102, 31, 90]),
    ImagePrompt([5, 8, 101, pixels_of(6, 40, 24), 102, 11]),
)


_oracle = lru_cache(maxsize=1)(image_oracle)  # for all kinds


def test_every_model_that_reads_images_has_an_oracle() -> None:
    named = {name for row in ARCHITECTURES if row.build_tower is not None for name in row.hf_names}
    assert named == TINY_IMAGE_ORACLES.keys()


class Subject:
    """A model under test: transformers' answers, and our load of the files that were made from it."""

    def __init__(self, oracle: ImageOracle, loaded: LoadedModel) -> None:
        self.oracle = oracle
        self.loaded = loaded
        self.prompts = PROMPTS + OF_ANY_SIZE if oracle.takes_any_size else PROMPTS
        guesses = self.answers(Engine(loaded, exact_config()))
        self.expected = [
            oracle.greedy(prompt, COUNT, guess=guess) for prompt, guess in zip(self.prompts, guesses, strict=True)
        ]

    @property
    def has_states(self) -> bool:
        return self.loaded.info.config.recurrent is not None

    def check_cached(self, outcome: Outcome, most: int) -> None:
        """A model with states begins behind the last of those that are kept."""
        cached = last(outcome).cached_tokens
        assert cached == most or (self.has_states and cached < most)

    def answers(self, engine: Engine) -> list[list[int]]:
        """To all prompts, added at once."""
        return [tokens_of(outcome) for outcome in answers(engine, self.prompts)]


@pytest.fixture(
    scope="module",
    params=[
        (name, kind)
        for name in TINY_IMAGE_ORACLES
        for kind in ("torch", "kernels", "gguf")
        if kind != "kernels" or not name.startswith("Qwen3_5")  # their states are smaller than the kernels compute
    ],
    ids="-".join,
)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    name, kind = request.param
    folder: Path = tmp_path_factory.mktemp(name)
    oracle = _oracle(name)
    if kind == "gguf":
        decoder, mmproj = oracle.write_pair(folder)
        return Subject(oracle, load_model(decoder, EngineConfig(), mmproj=mmproj))
    loaded = load_model(oracle.write(folder), EngineConfig(dtype="float32" if kind == "torch" else "auto"))
    assert isinstance(loaded.open_executor(exact_config()), TorchExecutor if kind == "torch" else CpuExecutor)
    return Subject(oracle, loaded)


def answers(engine: Engine, prompts: tuple[ImagePrompt, ...]) -> list[Outcome]:
    """To prompts that are added at once."""
    sequences = [engine.add(prompt.request(GREEDY)) for prompt in prompts]
    outcomes = run(engine)
    return [outcomes[sequence] for sequence in sequences]


def test_its_logits_are_those_of_transformers_at_every_position_of_a_prompt(subject: Subject) -> None:
    sampling = SamplingParams(temperature=0.0, max_tokens=1, context_logits=True)
    for prompt in subject.prompts:
        engine = Engine(subject.loaded, exact_config())
        sequence = engine.add(prompt.request(sampling))
        found = last(run(engine)[sequence]).context_logits
        assert found is not None
        # transformers computes states in chunks, which rounds otherwise: 7e-4 with AVX2 (2026-11).
        atol = 1e-3 if subject.has_states else 5e-4
        torch.testing.assert_close(torch.from_numpy(found), subject.oracle.logits(prompt), atol=atol, rtol=1e-4)


def test_what_an_image_shows_changes_the_answer(subject: Subject) -> None:
    other = subject.oracle.greedy(ImagePrompt([101, ONE]), COUNT)
    assert other != subject.expected[2]


def test_alone_it_answers_as_transformers(subject: Subject) -> None:
    for prompt, expected in zip(subject.prompts, subject.expected, strict=True):
        (outcome,) = answers(Engine(subject.loaded, exact_config()), (prompt,))
        assert tokens_of(outcome) == expected


@pytest.mark.parametrize("budget", [64, 7, 5, 3, 1])
def test_batched_and_chunked_it_answers_the_same(subject: Subject, budget: int) -> None:
    assert subject.answers(Engine(subject.loaded, exact_config(max_batch_tokens=budget))) == subject.expected


def test_preempted_it_answers_the_same(subject: Subject) -> None:
    roomy = exact_config(max_batch_tokens=16)
    executor = subject.loaded.open_executor(roomy)
    block_bytes = roomy.kv_bytes // (executor.num_blocks + 1)
    executor.close()
    engine = Engine(subject.loaded, replace(roomy, kv_bytes=13 * block_bytes))
    assert subject.answers(engine) == subject.expected
    assert engine.stats().preemptions > 0


def test_with_guessed_tokens_it_answers_the_same_or_has_none(subject: Subject) -> None:
    config = exact_config(draft_tokens=3)
    if subject.has_states:  # which cannot go back behind a wrong guess
        with pytest.raises(InvalidInput, match="draft_tokens"):
            Engine(subject.loaded, config)
    else:
        assert subject.answers(Engine(subject.loaded, config)) == subject.expected


def test_beams_are_ranked_by_what_transformers_thinks_of_them(subject: Subject) -> None:
    engine = Engine(subject.loaded, exact_config())
    sampling = replace(GREEDY, beam_search=True, n=1, best_of=2)
    sequences = [engine.add(prompt.request(sampling)) for prompt in PROMPTS[:2]]
    outcomes = run(engine)
    for sequence, prompt in zip(sequences, PROMPTS, strict=False):
        own = last(outcomes[sequence])
        assert own.score == pytest.approx(score_of(subject, prompt, [one.token_id for one in own.tokens]), abs=1e-3)


def score_of(subject: Subject, prompt: ImagePrompt, answer: list[int]) -> float:
    """The mean log-probability of an answer's tokens, by transformers."""
    logprobs = subject.oracle.logits(prompt, answer).log_softmax(-1)
    first = len(prompt.tokens) - 1
    return sum(float(logprobs[first + place, token]) for place, token in enumerate(answer)) / len(answer)


@pytest.mark.parametrize("words_before", [0, 1, 2, 3])
def test_behind_a_cached_prefix_that_ends_anywhere_in_an_image_it_answers_the_same(
    subject: Subject, words_before: int
) -> None:
    prompt = ImagePrompt([*range(20, 20 + words_before), 101, ONE, 102, 64])
    engine = Engine(subject.loaded, exact_config(max_batch_tokens=5))
    for cached_tokens in (0, (len(prompt.tokens) - 1) // 4 * 4):
        (outcome,) = answers(engine, (prompt,))
        answer = tokens_of(outcome)
        assert answer == subject.oracle.greedy(prompt, COUNT, guess=answer)
        subject.check_cached(outcome, cached_tokens)


def test_prompts_that_differ_in_an_image_alone_share_what_is_before_it(subject: Subject) -> None:
    engine = Engine(subject.loaded, exact_config())
    for image, cached_tokens in ((ONE, 0), (OTHER, 4), (THIRD, 4), (OTHER, 12)):
        prompt = ImagePrompt([3, 17, 99, 42, 101, image, 102, 64, 23, 9, 8, 5])
        (outcome,) = answers(engine, (prompt,))
        answer = tokens_of(outcome)
        assert answer == subject.oracle.greedy(prompt, COUNT, guess=answer)
        subject.check_cached(outcome, cached_tokens)


def test_images_are_given_for_the_tokens_that_stand_for_them() -> None:
    assert ImagePrompt([5, ONE, 6]).tokens == [5, *[100] * TOKENS, 6]
