"""LoRA through the whole engine: peft's answers, alone and mixed in one batch, with a prefix cache for each load."""

import gc
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from local_engine.adapters import AdapterTable
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import InvalidInput, ModelLoadError, UnknownAdapter
from local_engine.generation import GenerationRequest, StepOutput
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import Outcome, generate, last, request, run, small_config, tokens_of
from tests.local_engine.tiny_adapters import adapted, write_adapter
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_gguf, write_safetensors

PROMPT = [3, 17, 99, 42, 5, 64, 23, 8, 111, 2, 77, 31, 90, 12, 55, 6, 71, 28, 39]
GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
SCORED = replace(GREEDY, logprobs=0, prompt_logprobs=0)


@pytest.fixture(scope="module")
def folders(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("adapters")
    return {
        "all": write_adapter(oracle, root / "all", seed=1),
        "some": write_adapter(oracle, root / "some", seed=2, target_modules=["v_proj", "down_proj"], r=3),
        "other": write_adapter(oracle, root / "other", seed=3, use_rslora=True, rank_pattern={"q_proj": 7}),
    }


@pytest.fixture(scope="module")
def tiny_model(tiny_folder: Path) -> LoadedModel:
    """For torch, whatever kernels this machine has."""
    return load_model(tiny_folder, EngineConfig(dtype="float32"))


def asking(prompt: list[int], adapter: str | None, sampling: SamplingParams = GREEDY) -> GenerationRequest:
    return replace(request(prompt, sampling), adapter=adapter)


def engine_with(loaded: LoadedModel, folders: dict[str, Path], **overrides: int) -> Engine:
    engine = Engine(loaded, small_config(**overrides))
    for name, folder in folders.items():
        engine.load_adapter(name, folder)
    return engine


def scores_of(outcome: Outcome) -> list[float]:
    """The log-probabilities of the prompt but for its first token, and of the answer."""
    events = [event for event in outcome if isinstance(event, StepOutput)]
    prompt = [token.logprob for event in events for token in (event.prompt_logprobs or ())[1:]]
    scores = [*prompt, *(token.logprob for event in events for token in event.tokens)]
    assert None not in scores
    return [score for score in scores if score is not None]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("form", ["safetensors", "gguf"])
def test_every_adapter_answers_as_peft_does_alone_and_in_a_mixed_batch(kind: str, form: str, tmp_path: Path) -> None:
    oracle = tiny_oracle(kind=kind)
    path = write_safetensors(oracle, tmp_path / "m") if form == "safetensors" else write_gguf(oracle, tmp_path / "m")
    folders = {
        "all": write_adapter(oracle, tmp_path / "all", seed=1),
        "qv": write_adapter(oracle, tmp_path / "qv", seed=2, target_modules=r".*\.(q|v)_proj", lora_alpha=3),
        "ranks": write_adapter(
            oracle, tmp_path / "ranks", seed=3, use_rslora=True, rank_pattern={"up_proj": 2, "1.self_attn.q_proj": 6}
        ),
    }
    oracles: dict[str | None, Oracle] = {None: oracle}
    oracles |= {name: adapted(oracle, folder) for name, folder in folders.items()}
    loaded = load_model(path, EngineConfig(dtype="float32"))
    items = [asking(prompt, name) for name in oracles for prompt in (PROMPT, PROMPT[:7], [120])]
    expected = [oracles[item.adapter].greedy(list(item.prompt), 10) for item in items]
    assert len({tuple(answer) for answer in expected[::3]}) == 4
    alone = engine_with(loaded, folders)
    assert [tokens_of(generate(alone, [item])[0]) for item in items] == expected
    # 7 tokens a step: parts of prompts beside sequences that decode, of all adapters and none.
    together = generate(engine_with(loaded, folders, max_batch_tokens=7), items)
    assert [tokens_of(outcome) for outcome in together] == expected


def test_log_probabilities_are_those_of_peft(oracle: Oracle, tiny_model: LoadedModel, folders: dict[str, Path]) -> None:
    engine = engine_with(tiny_model, folders)
    for name, folder in folders.items():
        (outcome,) = generate(engine, [asking(PROMPT, name, SCORED)])
        tokens = [*PROMPT, *tokens_of(outcome)]
        expected = torch.log_softmax(adapted(oracle, folder).logits(tokens), -1)
        assert scores_of(outcome) == pytest.approx(
            [float(expected[index, token]) for index, token in enumerate(tokens[1:])], abs=2e-4
        )


def test_an_answer_does_not_change_with_the_adapters_beside_it(
    tiny_model: LoadedModel, folders: dict[str, Path]
) -> None:
    item = asking(PROMPT, "all", SCORED)
    engine = Engine(tiny_model, small_config(prefix_cache=False))
    for name, folder in folders.items():
        engine.load_adapter(name, folder)
    (alone,) = generate(engine, [item])
    others = [asking(PROMPT[:count], name) for count, name in ((5, None), (9, "some"), (3, "other"), (11, "all"))]
    beside = generate(engine, [*others[:2], item, *others[2:]])[2]
    assert tokens_of(beside) == tokens_of(alone)
    assert scores_of(beside) == pytest.approx(scores_of(alone), abs=1e-5)


def test_no_adapter_and_no_load_finds_what_another_one_cached(
    oracle: Oracle, tiny_model: LoadedModel, folders: dict[str, Path]
) -> None:
    engine = engine_with(tiny_model, {"a": folders["all"], "b": folders["all"]})
    for name in (None, "a", "b"):
        for cached_tokens in (0, 16):
            (outcome,) = generate(engine, [asking(PROMPT, name)])
            assert last(outcome).cached_tokens == cached_tokens
    engine.adapters.remove("a")
    engine.load_adapter("a", folders["other"])
    (again,) = generate(engine, [asking(PROMPT, "a")])
    assert last(again).cached_tokens == 0
    assert tokens_of(again) == adapted(oracle, folders["other"]).greedy(PROMPT, 10)


def test_a_request_keeps_its_adapter_when_it_is_unloaded_and_new_ones_are_refused(
    oracle: Oracle, tiny_model: LoadedModel, folders: dict[str, Path]
) -> None:
    engine = engine_with(tiny_model, {"a": folders["all"]}, max_batch_tokens=8)
    running = engine.add(asking(PROMPT, "a"))
    waiting = engine.add(asking(PROMPT[1:], "a"))
    engine.step()
    engine.adapters.remove("a")
    with pytest.raises(UnknownAdapter) as caught:
        engine.add(asking(PROMPT, "a"))
    assert caught.value.name == "a"
    engine.load_adapter("a", folders["other"])
    run(engine)
    expected = adapted(oracle, folders["all"])
    assert running.tokens[len(PROMPT) :] == expected.greedy(PROMPT, 10)
    assert waiting.tokens[len(PROMPT) - 1 :] == expected.greedy(PROMPT[1:], 10)


def test_a_preempted_request_comes_back_with_its_adapter(tiny_model: LoadedModel, folders: dict[str, Path]) -> None:
    items = [asking([60 + index, *PROMPT[: 9 + 3 * index]], name) for index, name in enumerate([None, *folders])]
    wide = engine_with(tiny_model, folders)
    expected = [tokens_of(generate(wide, [item])[0]) for item in items]
    shape = tiny_model.info.config
    block_bytes = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * 4 * 4
    narrow = engine_with(tiny_model, folders, kv_bytes=block_bytes * 11, max_batch_tokens=16)
    assert [tokens_of(outcome) for outcome in generate(narrow, items)] == expected
    assert narrow.stats().preemptions > 0


def test_one_failed_load_leaves_the_name_free(
    tiny_model: LoadedModel, folders: dict[str, Path], tmp_path: Path
) -> None:
    engine = Engine(tiny_model, small_config())
    with pytest.raises(ModelLoadError):
        engine.load_adapter("a", tmp_path)
    assert not engine.adapters.names
    engine.load_adapter("a", folders["all"])
    assert engine.adapters.names == ("a",)


@pytest.mark.parametrize("name", ["", "a:b", "a/b", "a\n", "x" * 129, "a"])
def test_a_name_that_is_none_or_is_taken_is_refused_before_a_file_is_opened(
    tiny_model: LoadedModel, folders: dict[str, Path], name: str
) -> None:
    engine = engine_with(tiny_model, {"a": folders["all"]})
    with pytest.raises(InvalidInput) as caught:
        engine.load_adapter(name, Path("nowhere"))
    assert caught.value.param == "adapter"
    assert engine.adapters.names == ("a",)


def test_the_number_of_adapters_is_bounded(tiny_model: LoadedModel, folders: dict[str, Path]) -> None:
    engine = Engine(tiny_model, small_config())
    engine.adapters = AdapterTable(limit=2)
    for name in ("a", "b"):
        engine.load_adapter(name, folders["some"])
    with pytest.raises(InvalidInput, match="as many as there may be"):
        engine.load_adapter("c", folders["some"])
    engine.adapters.remove("a")
    engine.load_adapter("c", folders["some"])
    assert engine.adapters.names == ("b", "c")


def test_beams_have_the_adapter_of_their_request(
    oracle: Oracle, tiny_model: LoadedModel, folders: dict[str, Path]
) -> None:
    engine = engine_with(tiny_model, folders)
    search = SamplingParams(beam_search=True, n=2, best_of=3, max_tokens=6, ignore_eos=True, length_penalty=1.0)
    (outcome,) = generate(engine, [asking(PROMPT, "all", search)])
    expected = adapted(oracle, folders["all"]).model.generate(
        input_ids=torch.tensor([PROMPT]),
        attention_mask=torch.ones(1, len(PROMPT), dtype=torch.long),
        do_sample=False,
        num_beams=3,
        num_return_sequences=2,
        max_new_tokens=6,
        eos_token_id=None,
        pad_token_id=0,
    )
    found = [[token.token_id for token in answer.tokens] for answer in (last(outcome), *last(outcome).others)]
    assert found == expected[:, len(PROMPT) :].tolist()


def test_the_memory_of_an_unloaded_adapter_goes_with_its_last_sequence(
    tiny_model: LoadedModel, folders: dict[str, Path]
) -> None:
    engine = engine_with(tiny_model, {"a": folders["all"]})
    held = weakref.ref(next(iter(engine.adapters.find("a").deltas.values())).down)
    sequence = engine.add(asking(PROMPT, "a"))
    engine.step()
    engine.adapters.remove("a")
    assert held() is not None
    run(engine)
    del sequence
    gc.collect()
    assert held() is None
