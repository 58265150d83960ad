"""The fused decoder of GPUs on the twins of its kernels: against transformers, and against the torch reference."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import GenerationFailed, InvalidInput, ModelLoadError
from local_engine.generation import GenerationRequest
from local_engine.kernels.gpu.decoder import unsupported
from local_engine.kernels.gpu.executor import GpuExecutor
from local_engine.loading.load import LoadedModel
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import config_with_blocks, generate, last, request, token_outputs, tokens_of
from tests.local_engine.kernels.gpu.on_cpu import FUSED, LEFT_TO_TORCH, fused_config, load_on_cpu
from tests.local_engine.models.against_transformers import PROMPTS
from tests.local_engine.models.tiny_oracles import TEXT_ARCHITECTURES, oracle_of, shape_of
from tests.local_engine.test_engine import POISON
from tests.local_engine.tiny_adapters import adapted, write_adapter
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_safetensors

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
SEEDED = SamplingParams(temperature=1.3, top_k=40, top_p=0.9, min_p=0.01, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def fused(tiny_folder: Path) -> LoadedModel:
    return load_on_cpu(tiny_folder)


def seeded(index: int) -> SamplingParams:
    return replace(SEEDED, seed=index)


def answers(loaded: LoadedModel, config: EngineConfig, requests: Sequence[GenerationRequest]) -> list[list[int]]:
    return [tokens_of(outcome) for outcome in generate(Engine(loaded, config), requests)]


@pytest.mark.parametrize("name", FUSED)
def test_every_architecture_answers_as_in_transformers(name: str, tmp_path: Path) -> None:
    oracle = oracle_of(name)
    loaded = load_on_cpu(write_safetensors(oracle, tmp_path / "model"))
    # 7 tokens a step: prompts are cut, beside sequences that decode already.
    engine = Engine(loaded, fused_config(max_batch_tokens=7))
    for prompt, outcome in zip(PROMPTS, generate(engine, [request(prompt, GREEDY) for prompt in PROMPTS]), strict=True):
        answer = tokens_of(outcome)
        assert answer == oracle.greedy(prompt, 12, guess=answer)


@pytest.mark.parametrize("name", TEXT_ARCHITECTURES)
def test_architectures_that_are_left_to_torch_say_why(name: str) -> None:
    assert unsupported(shape_of(name)) == LEFT_TO_TORCH.get(name)


@pytest.mark.parametrize("overrides", [{}, {"max_sequences": 3}, {"max_batch_tokens": 9}], ids=str)
def test_steps_that_run_ahead_draw_what_the_sampler_draws(
    tiny_model: LoadedModel, fused: LoadedModel, overrides: dict[str, Any]
) -> None:
    requests = [request(prompt, seeded(index)) for index, prompt in enumerate((*PROMPTS, *PROMPTS))]
    config = fused_config(**overrides)
    assert answers(fused, config, requests) == answers(tiny_model, config, requests)


def test_penalties_and_logprobs_are_those_of_the_reference(tiny_model: LoadedModel, fused: LoadedModel) -> None:
    kinds = (
        replace(SEEDED, repetition_penalty=1.4, frequency_penalty=0.5),
        replace(GREEDY, presence_penalty=1.5, logprobs=3),
        replace(SEEDED, typical_p=0.6, logprobs=1),
        replace(SEEDED, logit_bias={5: 4.0}, bad_words=((7,), (3, 4))),
    )
    requests = [request(prompt, replace(kind, seed=7)) for prompt, kind in zip(PROMPTS, kinds, strict=True)]
    found, expected = (generate(Engine(loaded, fused_config()), requests) for loaded in (fused, tiny_model))
    for mine, theirs in zip(found, expected, strict=True):
        assert tokens_of(mine) == tokens_of(theirs)
        for one, other in zip(token_outputs(mine), token_outputs(theirs), strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert [token_id for token_id, _ in one.top] == [token_id for token_id, _ in other.top]


def test_preempted_answers_are_the_same(fused: LoadedModel) -> None:
    requests = [request(prompt, GREEDY if index % 2 else seeded(index)) for index, prompt in enumerate(PROMPTS)]
    engine = Engine(fused, config_with_blocks(fused, 13))
    outcomes = generate(engine, requests)
    assert engine.scheduler.preemptions > 0
    assert [tokens_of(outcome) for outcome in outcomes] == answers(fused, fused_config(), requests)


@pytest.mark.parametrize("kv_dtype", ["float16", "bfloat16", "int8", "fp8"])
def test_keys_and_values_are_kept_as_the_reference_keeps_them(
    tiny_model: LoadedModel, fused: LoadedModel, kv_dtype: Any
) -> None:
    requests = [request(prompt, GREEDY) for prompt in PROMPTS]
    config = fused_config(kv_dtype=kv_dtype)
    assert answers(fused, config, requests) == answers(tiny_model, config, requests)


def test_beams_share_and_copy_blocks_as_with_the_reference(tiny_model: LoadedModel, fused: LoadedModel) -> None:
    beams = SamplingParams(max_tokens=8, n=3, beam_search=True)
    found = []
    for loaded in (fused, tiny_model):
        (outcome,) = generate(Engine(loaded, fused_config()), [request(PROMPTS[0], beams)])
        best = last(outcome)
        found.append([[token.token_id for token in answer.tokens] for answer in (best, *best.others)])
    assert found[0] == found[1]


def test_adapters_change_rows_as_in_peft(oracle: Oracle, tiny_folder: Path, tmp_path: Path) -> None:
    folder = write_adapter(oracle, tmp_path / "adapter")
    engine = Engine(load_on_cpu(tiny_folder), fused_config())
    engine.load_adapter("a", folder)
    requests = [GenerationRequest("r", tuple(PROMPTS[0]), GREEDY, adapter=adapter) for adapter in (None, "a", None)]
    plain, changed, other = (tokens_of(outcome) for outcome in generate(engine, requests))
    assert plain == other == oracle.greedy(PROMPTS[0], 12)
    assert changed == adapted(oracle, folder).greedy(PROMPTS[0], 12)


def test_logits_that_are_not_numbers_fail_their_own_request_alone(tmp_path: Path) -> None:
    oracle = tiny_oracle()
    with torch.no_grad():
        oracle.model.model.embed_tokens.weight[POISON] = torch.nan
    loaded = load_on_cpu(write_safetensors(oracle, tmp_path / "poisoned"))
    requests = [request(prompt, GREEDY) for prompt in (PROMPTS[0], [3, POISON, 4], PROMPTS[3])]
    healthy, failed, other = generate(Engine(loaded, fused_config()), requests)
    assert isinstance(failed[-1], GenerationFailed)
    assert [tokens_of(healthy), tokens_of(other)] == [oracle.greedy(PROMPTS[index], 12) for index in (0, 3)]


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Qwen3MoeForCausalLM", "GptOssForCausalLM"])
def test_a_deterministic_engine_computes_all_rows_as_rows_of_prompts(name: str, tmp_path: Path) -> None:
    oracle = oracle_of(name)
    config = fused_config(deterministic=True, max_batch_tokens=7)
    loaded = load_on_cpu(write_safetensors(oracle, tmp_path / "model"), config)
    found = answers(loaded, config, [request(prompt, GREEDY) for prompt in PROMPTS])
    assert found == [oracle.greedy(prompt, 12) for prompt in PROMPTS]


def test_a_pool_too_small_is_refused_by_name(fused: LoadedModel) -> None:
    with pytest.raises(InvalidInput) as caught:
        fused.open_executor(fused_config(kv_bytes=100))
    assert caught.value.param == "kv_bytes"


def test_a_closed_executor_holds_no_pool(fused: LoadedModel) -> None:
    executor = fused.open_executor(fused_config())
    assert isinstance(executor, GpuExecutor)
    assert executor.num_blocks > 0
    caches = executor._pool.caches
    executor.close()
    assert caches == []


def test_recording_is_told_step_by_step(tiny_folder: Path) -> None:
    told: list[tuple[int, int]] = []
    executor = load_on_cpu(tiny_folder).open_executor
    executor.keywords["recording"] = lambda done, total: told.append((done, total))  # type: ignore[attr-defined]
    executor(fused_config(max_sequences=5))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_it_cannot_run_goes_to_torch_unless_determinism_is_asked_for(
    deterministic: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_safetensors(tiny_oracle(head_dim=512), tmp_path / "model")
    config = fused_config(deterministic=deterministic)
    if deterministic:
        with pytest.raises(ModelLoadError, match="deterministic needs the GPU kernels: head_dim 512"):
            load_on_cpu(folder, config)
    else:
        with caplog.at_level("INFO"), pytest.raises(AssertionError):
            load_on_cpu(folder, config)
        assert "not on the GPU kernels: head_dim 512" in caplog.text
