"""A real model, SmolLM2-135M-Instruct in four bits: sense in its answers, the same ones however they are batched."""

from pathlib import Path

import pytest

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.loading.gguf import GgufFile
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import generate, last, request, tokens_of

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
