"""The real SmolLM2 GGUF finds a fixed text as likely as transformers does in float32, whatever we compute in."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from local_engine.config import DType, EngineConfig, KVDType
from local_engine.engine import Engine
from local_engine.generation import StepOutput
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import generate, request
from tests.local_engine.reference_model import prose_tokens, reference_model
from tests.local_engine.tiny_models import Oracle

SHORT = 128


@pytest.fixture(scope="module")
def reference(smollm2_path: Path) -> Oracle:
    return reference_model(smollm2_path)


@pytest.fixture(scope="module")
def tokens(smollm2_path: Path) -> list[int]:
    return prose_tokens(smollm2_path)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> LoadedModel:
    return load_model(smollm2_path, EngineConfig(dtype="float32"))


def loss_of(loaded: LoadedModel, tokens: list[int], **settings: str) -> float:
    """The mean negative log-probability of a text's tokens after the first, through the engine as it serves."""
    config = EngineConfig(kv_bytes=256 << 20, **settings)  # type: ignore[arg-type]
    scored = SamplingParams(max_tokens=1, prompt_logprobs=0)
    (outcome,) = generate(Engine(loaded, config), [request(tokens, scored)])
    (entries,) = [event.prompt_logprobs for event in outcome if isinstance(event, StepOutput) and event.prompt_logprobs]
    scores = [entry.logprob for entry in entries[1:]]
    assert len(scores) == len(tokens) - 1
    return -math.fsum(score for score in scores if score is not None) / len(scores)


def reference_loss(reference: Oracle, tokens: list[int]) -> float:
    logits: Tensor = reference.logits(tokens)[:-1]
    return float(torch.nn.functional.cross_entropy(logits.double(), torch.tensor(tokens[1:])))


def off_by(loss: float, expected: float) -> float:
    """By how much the perplexity differs, as a share of the expected one."""
    return abs(math.expm1(loss - expected))


def test_the_perplexity_of_a_short_text_is_that_of_transformers(
    smollm2: LoadedModel, reference: Oracle, tokens: list[int]
) -> None:
    expected = reference_loss(reference, tokens[:SHORT])
    assert 20 < math.exp(expected) < 100  # the model does read this text
    assert off_by(loss_of(smollm2, tokens[:SHORT]), expected) < 0.0005
    assert off_by(loss_of(smollm2, tokens[:SHORT], kv_dtype="int8"), expected) < 0.03


@pytest.mark.slow
def test_the_perplexity_of_the_whole_text_is_that_of_transformers(
    smollm2: LoadedModel, reference: Oracle, tokens: list[int]
) -> None:
    assert len(tokens) > 900
    assert off_by(loss_of(smollm2, tokens), reference_loss(reference, tokens)) < 0.0005


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kv_dtype", "allowed"), [("float16", 0.0005), ("bfloat16", 0.002), ("int8", 0.003), ("fp8", 0.01)]
)
def test_what_keys_and_values_are_kept_in_costs_no_more_than_this(
    smollm2: LoadedModel, reference: Oracle, tokens: list[int], kv_dtype: KVDType, allowed: float
) -> None:
    assert off_by(loss_of(smollm2, tokens, kv_dtype=kv_dtype), reference_loss(reference, tokens)) < allowed


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "allowed"), [("bfloat16", 0.01), ("float16", 0.001)])
def test_computing_in_half_precision_costs_no_more_than_this(
    smollm2_path: Path, reference: Oracle, tokens: list[int], dtype: DType, allowed: float
) -> None:
    loaded = load_model(smollm2_path, EngineConfig(dtype=dtype))
    assert off_by(loss_of(loaded, tokens, dtype=dtype), reference_loss(reference, tokens)) < allowed
