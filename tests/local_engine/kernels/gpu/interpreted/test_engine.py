"""The engine end to end on the kernels of GPUs, interpreted: the tokens of the reference."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType

from local_engine.adapters import Adapter
from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.executor import Executor
from local_engine.generation import GenerationRequest
from local_engine.kernels.dispatch import choose_kernels, device_facts
from local_engine.kernels.operations import Choice
from local_engine.loading.load import load_model
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence
from tests.local_engine.engine_driver import generate, request, token_outputs, tokens_of
from tests.local_engine.kernels.gpu.on_cpu import fused_config, load_on_cpu
from tests.local_engine.models.tiny_oracles import oracle_of
from tests.local_engine.tiny_adapters import write_adapter
from tests.local_engine.tiny_models import tiny_oracle, write_gguf, write_safetensors

PROMPTS = ([3, 17, 99, 42, 5, 64, 23, 8], [120], [3, 17, 99])
SEEDED = SamplingParams(temperature=1.2, top_p=0.9, seed=5, max_tokens=4, ignore_eos=True)
GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
KINDS = (
    replace(GREEDY, logprobs=2),
    replace(SEEDED, repetition_penalty=1.3, frequency_penalty=0.4, min_tokens=2, stop_token_ids=(5,)),
    replace(SEEDED, logit_bias={5: 2.0}, top_k=50, bad_words=((7,),)),
)
# Norms of heads, norms after sublayers, windows, sinks, biases and experts, in the fewest layers that have them.
MODELS: dict[str, dict[str, Any]] = {
    "GptOssForCausalLM": {"num_hidden_layers": 1, "layer_types": ["sliding_attention"]},
    "Gemma3ForCausalLM": {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
}


def test_these_are_the_kernels_and_not_their_twins() -> None:
    assert Choice("paged_decode", "triton") in choose_kernels(device_facts(torch.device("cpu"))).choices


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_the_reference_token_for_token(name: str, tmp_path: Path) -> None:
    folder = write_safetensors(oracle_of(name, **MODELS[name]), tmp_path / "model")
    requests = [request(prompt, kind) for prompt, kind in zip(PROMPTS, KINDS, strict=True)]
    config = fused_config(max_batch_tokens=6, max_sequences=3)
    found = generate(Engine(load_on_cpu(folder), config), requests)
    expected = generate(Engine(load_model(folder, EngineConfig(dtype="float32")), config), requests)
    for mine, theirs in zip(found, expected, strict=True):
        assert tokens_of(mine) == tokens_of(theirs)
        for one, other in zip(token_outputs(mine), token_outputs(theirs), strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert [token_id for token_id, _ in one.top] == [token_id for token_id, _ in other.top]


def test_adapters_add_in_recorded_and_in_other_steps_what_they_add_in_the_reference(tmp_path: Path) -> None:
    oracle = oracle_of("LlamaForCausalLM", num_hidden_layers=1)
    folder = write_safetensors(oracle, tmp_path / "model")
    adapter = write_adapter(oracle, tmp_path / "adapter", target_modules=["q_proj", "v_proj", "down_proj"])
    asked = [replace(request(PROMPTS[0], replace(GREEDY, max_tokens=3)), adapter=name) for name in ("a", None)]
    answers = []
    for loaded in (load_on_cpu(folder), load_model(folder, EngineConfig(dtype="float32"))):
        engine = Engine(loaded, fused_config(max_sequences=2))
        engine.load_adapter("a", adapter)
        answers.append([tokens_of(outcome) for outcome in generate(engine, asked)])
    assert answers[0] == answers[1]
    assert answers[0][0] != answers[0][1]


def test_an_embedding_and_a_head_in_few_bits_answer_as_the_reference_does(tmp_path: Path) -> None:
    oracle = tiny_oracle(num_hidden_layers=1, hidden_size=64, tie_word_embeddings=True)
    path = write_gguf(oracle, tmp_path / "model.gguf", matrix_type=GGMLQuantizationType.Q8_0)
    requests = [request(prompt, replace(GREEDY, max_tokens=3)) for prompt in PROMPTS[:2]]
    fused, reference = (
        generate(Engine(loaded, fused_config(max_sequences=2)), requests)
        for loaded in (load_on_cpu(path), load_model(path, EngineConfig(dtype="float32")))
    )
    assert [tokens_of(outcome) for outcome in fused] == [tokens_of(outcome) for outcome in reference]


def _rows(executor: Executor, *chunks: Chunk) -> list[torch.Tensor]:
    with torch.inference_mode():
        step = executor.forward(chunks)
    firsts = dict(zip(step.chunks, step.first_row, strict=True))
    return [step.hidden[firsts[chunk] : firsts[chunk] + chunk.stop - chunk.start].clone() for chunk in chunks]


def test_deterministic_rows_are_the_same_bits_however_prompts_are_cut_and_whoever_is_beside(tmp_path: Path) -> None:
    oracle = oracle_of("MistralForCausalLM", num_hidden_layers=1, sliding_window=9)
    config = fused_config(deterministic=True)
    loaded = load_on_cpu(write_safetensors(oracle, tmp_path / "model"), config)
    executor = loaded.open_executor(config)
    mine, another = (
        Adapter(name, loaded.read_adapter(write_adapter(oracle, tmp_path / name, target_modules=[name])))
        for name in ("q_proj", "up_proj")
    )

    def sequence(length: int, blocks: list[int], step: int, adapter: Adapter = mine) -> Sequence:
        tokens = tuple((step * index + 3) % 128 for index in range(length))
        made = Sequence(GenerationRequest("r", tokens, SamplingParams()), 0, 0, frozenset(), 1)
        made.blocks = blocks
        made.adapter = adapter
        return made

    whole = sequence(21, list(range(1, 7)), 7)
    (alone,) = _rows(executor, Chunk(whole, 0, 21))
    cut, other = sequence(21, list(range(12, 6, -1)), 7), sequence(17, list(range(13, 18)), 11, another)
    pieces = []
    for start, stop, begin, end in ((0, 6, 0, 5), (6, 19, 5, 6), (19, 20, 6, 16), (20, 21, 16, 17)):
        _, own = _rows(executor, Chunk(other, begin, end), Chunk(cut, start, stop))
        pieces.append(own)
    assert torch.equal(torch.cat(pieces), alone)
