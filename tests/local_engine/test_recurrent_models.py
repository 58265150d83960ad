"""What the engine does with models that have recurrent layers, besides what every architecture proves."""

from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from pathlib import Path

import pytest

from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import InvalidInput
from local_engine.executor import Executor, StepRows
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from local_engine.state_pool import state_bytes
from tests.local_engine.engine_driver import config_with_blocks, generate, last, request, small_config, tokens_of
from tests.local_engine.models.against_transformers import PROMPTS
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_models import Oracle, write_safetensors

GREEDY = SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True)
SYSTEM = [*range(30, 54)]


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return oracle_of("Lfm2ForCausalLM")


@pytest.fixture(scope="module")
def loaded(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tmp_path_factory.mktemp("lfm2")
    return load_model(write_safetensors(oracle, folder), EngineConfig())


def test_what_prompts_have_in_common_is_computed_twice_and_never_again(loaded: LoadedModel, oracle: Oracle) -> None:
    engine = Engine(loaded, small_config())
    for tail, cached_tokens in ((1, 0), (2, 0), (3, 24), (4, 24)):  # the second one shows where it ends
        prompt = [*SYSTEM, tail, 9, 8, 7, 6, 5, 4, tail]
        (outcome,) = generate(engine, [request(prompt, GREEDY)])
        assert tokens_of(outcome) == oracle.greedy(prompt, 14)
        assert last(outcome).cached_tokens == cached_tokens


def test_without_the_prefix_cache_it_answers_the_same(loaded: LoadedModel, oracle: Oracle) -> None:
    engine = Engine(loaded, small_config(prefix_cache=False))
    for _ in range(2):
        (outcome,) = generate(engine, [request(PROMPTS[0], GREEDY)])
        assert tokens_of(outcome) == oracle.greedy(PROMPTS[0], 14)
        assert last(outcome).cached_tokens == 0


@pytest.mark.parametrize("beams", [True, False])
def test_several_answers_are_those_of_an_engine_without_cache_and_of_one_with_few_blocks(
    loaded: LoadedModel, beams: bool
) -> None:
    sampling = SamplingParams(n=3, beam_search=beams, max_tokens=9, seed=5, ignore_eos=True)
    requests = [request(prompt, sampling) for prompt in PROMPTS]
    configs = (
        small_config(prefix_cache=False),
        small_config(),
        config_with_blocks(loaded, 12, max_batch_tokens=16),
    )
    answers = []
    for config in configs:
        outputs = [last(outcome) for outcome in generate(Engine(loaded, config), requests)]
        answers.append([[token.token_id for token in output.tokens] for output in outputs])
        answers[-1] += [[token.token_id for token in each.tokens] for output in outputs for each in output.others]
    assert answers[0] == answers[1] == answers[2]


class FailingOnce:
    """An executor whose device has computed a step of several chunks when it raises, once."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.num_blocks, self.num_states, self.ahead = executor.num_blocks, executor.num_states, executor.ahead
        self.logits, self.copy_blocks, self.sample = executor.logits, executor.copy_blocks, executor.sample
        self.close, self.prepare = executor.close, executor.prepare
        self._steps = 0

    def forward(self, chunks: SequenceOf[Chunk]) -> StepRows:
        rows = self._executor.forward(chunks)
        self._steps += len(chunks) > 1
        if self._steps == 4:
            self._steps += 1
            raise RuntimeError("the device was lost for a moment")
        return rows


def test_a_step_that_is_computed_again_begins_with_the_states_before_it(loaded: LoadedModel, oracle: Oracle) -> None:
    failing = replace(loaded, open_executor=lambda config: FailingOnce(loaded.open_executor(config)))
    outcomes = generate(Engine(failing, small_config(max_batch_tokens=7)), [request(each, GREEDY) for each in PROMPTS])
    for prompt, outcome in zip(PROMPTS, outcomes, strict=True):
        assert tokens_of(outcome) == oracle.greedy(prompt, 14)


def test_guessed_tokens_are_refused_by_name(loaded: LoadedModel) -> None:
    with pytest.raises(InvalidInput, match="recurrent layers") as caught:
        Engine(loaded, small_config(draft_tokens=2))
    assert caught.value.param == "draft_tokens"


def test_a_model_with_states_guesses_for_no_other(loaded: LoadedModel, tmp_path: Path) -> None:
    target = load_model(write_safetensors(oracle_of("LlamaForCausalLM"), tmp_path), EngineConfig(dtype="float32"))
    with pytest.raises(InvalidInput, match="recurrent layers"):
        Engine(target, small_config(draft_tokens=2), draft=loaded)


def test_a_pool_without_room_for_two_states_is_refused_with_what_is_needed(loaded: LoadedModel) -> None:
    least = 6 * state_bytes(loaded.info.config)
    with pytest.raises(InvalidInput, match=f"at least {least} bytes"):
        Engine(loaded, small_config(kv_bytes=least - 1))
    Engine(loaded, small_config(kv_bytes=2 * least))
