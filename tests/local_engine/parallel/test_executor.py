"""What a step can ask for besides tokens, over two processes."""

from dataclasses import replace
from pathlib import Path

import pytest

from local_engine.engine import Engine
from local_engine.parallel.group import RankGroup
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import Outcome, generate, last, request, small_config, token_outputs, tokens_of
from tests.local_engine.models.against_transformers import PROMPTS
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.parallel.alike import Models, load_both
from tests.local_engine.tiny_adapters import ALL_LINEAR, write_adapter
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_safetensors

GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return tiny_oracle()


@pytest.fixture(scope="module")
def models(oracle: Oracle, pair: RankGroup, tmp_path_factory: pytest.TempPathFactory) -> Models:
    return load_both(write_safetensors(oracle, tmp_path_factory.mktemp("tiny") / "model"), pair)


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Phi3ForCausalLM"])
def test_adapters_beside_their_base_change_the_same_answers(name: str, pair: RankGroup, tmp_path: Path) -> None:
    oracle = oracle_of(name)
    targets = {"Phi3ForCausalLM": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}.get(name, ALL_LINEAR)
    folder = write_adapter(oracle, tmp_path / "a", target_modules=targets, lora_alpha=4)
    models = load_both(write_safetensors(oracle, tmp_path / "m"), pair)
    requests = [replace(request(prompt, GREEDY), adapter=adapter) for prompt in PROMPTS for adapter in (None, "a")]

    def answers(engine: Engine) -> list[list[int]]:
        engine.load_adapter("a", folder)
        return [tokens_of(outcome) for outcome in generate(engine, requests)]

    expected = answers(Engine(models.one, small_config()))
    assert expected[::2] != expected[1::2]
    with models.engine(max_batch_tokens=7) as engine:
        assert answers(engine) == expected
        # The other process forgets an adapter when this one does, and not while a request has it.
        engine.adapters.remove("a")
        assert answers(engine) == expected


def test_drawn_tokens_and_their_logprobs_are_those_of_one_process(models: Models) -> None:
    sampling = SamplingParams(temperature=0.9, top_p=0.9, seed=3, max_tokens=8, logprobs=2, repetition_penalty=1.1)
    alone, two = models.answers([request(prompt, sampling) for prompt in PROMPTS], max_batch_tokens=9)
    for one, other in zip(alone, two, strict=True):
        for expected, found in zip(token_outputs(one), token_outputs(other), strict=True):
            assert found.token_id == expected.token_id
            assert found.logprob == pytest.approx(expected.logprob, abs=1e-4)


def test_several_answers_share_blocks_and_guesses_are_verified(models: Models) -> None:
    beams = SamplingParams(beam_search=True, n=2, best_of=3, max_tokens=6, temperature=0.0, ignore_eos=True)

    def told(outcomes: list[Outcome]) -> list[list[int]]:
        outputs = [answer for outcome in outcomes for answer in (last(outcome), *last(outcome).others)]
        return [[token.token_id for token in output.tokens] for output in outputs]

    alone, two = models.answers([request(PROMPTS[0], beams)])
    assert told(two) == told(alone)
    repeating = request(PROMPTS[0], replace(GREEDY, logit_bias={40: 3.0}))
    alone, two = models.answers([repeating], draft_tokens=3)
    assert tokens_of(two[0]) == tokens_of(alone[0])
    assert last(two[0]).accepted_draft_tokens > 0
