"""A real model, SmolLM2-135M-Instruct in four bits: sense in its answers, the same ones however they are batched."""

from dataclasses import replace
from pathlib import Path

import pytest

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.loading.gguf import GgufFile
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import Outcome, generate, last, request, token_outputs, tokens_of

CONFIG = EngineConfig(kv_bytes=256 << 20)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> LoadedModel:
    return load_model(smollm2_path, CONFIG)


@pytest.fixture(scope="module")
def vocabulary(smollm2_path: Path) -> list[str]:
    with GgufFile(smollm2_path) as file:
        tokens = file.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    return tokens


def question(vocabulary: list[str], words: str) -> list[int]:
    """A chat turn whose words, split at spaces, are tokens of their own."""
    ids = {token: index for index, token in enumerate(vocabulary)}
    turn = f"<|im_start|> user Ċ {words} <|im_end|> Ċ <|im_start|> ass istant Ċ"
    return [ids[token] for token in turn.split()]


def test_it_knows_the_capital_of_germany_and_stops_by_itself(smollm2: LoadedModel, vocabulary: list[str]) -> None:
    prompt = question(vocabulary, "What Ġis Ġthe Ġcapital Ġof ĠGermany ?")
    (outcome,) = generate(Engine(smollm2, CONFIG), [request(prompt, SamplingParams(temperature=0.0, max_tokens=32))])
    answer = "".join(vocabulary[token] for token in tokens_of(outcome)).replace("Ġ", " ")
    assert answer == "The capital of Germany is Berlin."
    assert last(outcome).finish == "stop"
    assert last(outcome).stop_token_id == 2


def test_batched_chunked_and_lone_answers_are_equal(smollm2: LoadedModel, vocabulary: list[str]) -> None:
    prompts = [
        question(vocabulary, words)
        for words in ("What Ġis Ġthe Ġcapital Ġof ĠGermany ?", "Tell Ġme Ġa Ġstory", "What Ġis Ġa Ġcat ?")
    ]
    sampling = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    lone = [tokens_of(generate(Engine(smollm2, CONFIG), [request(prompt, sampling)])[0]) for prompt in prompts]
    chunked = Engine(smollm2, EngineConfig(kv_bytes=256 << 20, max_batch_tokens=7))
    together = generate(chunked, [request(prompt, sampling) for prompt in prompts])
    assert [tokens_of(outcome) for outcome in together] == lone


@pytest.mark.parametrize("guesser", ["lookup", "itself"])
def test_guessed_preempted_and_cached_answers_are_the_same_to_the_last_bit(smollm2: LoadedModel, guesser: str) -> None:
    prompts = [[(811 * column + 97 * row) % 40_000 + 300 for column in range(12 + 9 * row)] * 2 for row in range(3)]
    kinds = [
        SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True, logprobs=1),
        SamplingParams(seed=3, temperature=0.8, top_p=0.9, max_tokens=10, ignore_eos=True, logprobs=0),
        SamplingParams(n=2, best_of=3, beam_search=True, max_tokens=6, ignore_eos=True),
    ]
    items = [request(prompt, sampling) for prompt in prompts for sampling in kinds]
    alone = Engine(smollm2, replace(CONFIG, prefix_cache=False))
    expected = [told(generate(alone, [item])[0]) for item in items]
    block_bytes = CONFIG.kv_bytes // (alone.stats().blocks_total + 1)
    config = replace(CONFIG, kv_bytes=10 * block_bytes, draft_tokens=3, max_batch_tokens=50)
    engine = Engine(smollm2, config, draft=None if guesser == "lookup" else smollm2)
    assert [told(outcome) for outcome in generate(engine, items)] == expected
    (again,) = generate(engine, items[-1:])
    assert told(again) == expected[-1]
    assert last(again).cached_tokens > 0
    stats = engine.stats()
    assert stats.preemptions > 0
    assert stats.accepted_draft_tokens > 0 or guesser == "lookup"
    assert stats.blocks_used == 0


def told(outcome: Outcome) -> list[object]:
    end = last(outcome)
    return [token_outputs(outcome), end.score, [(answer.tokens, answer.score) for answer in end.others]]
