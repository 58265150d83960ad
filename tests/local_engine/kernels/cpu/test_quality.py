"""What rounding activations costs the real SmolLM2, against transformers in float32 on a fixed text."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from local_engine.config import EngineConfig
from local_engine.loading.load import load_model
from tests.local_engine.kernels.cpu.test_executor import logits_of
from tests.local_engine.reference_model import prose_tokens, reference_model
from tests.local_engine.tiny_models import Oracle

SHORT = 400


@pytest.fixture(scope="module")
def reference(smollm2_path: Path) -> Oracle:
    return reference_model(smollm2_path)


def distribution(path: Path, tokens: list[int], config: EngineConfig) -> Tensor:
    """Log-probabilities at each position: [T, V]."""
    return logits_of(load_model(path, config), config, tokens).log_softmax(-1)


def divergence(expected: Tensor, got: Tensor) -> float:
    return float((expected.exp() * (expected - got)).sum(-1).mean())


def perplexity(logprobs: Tensor, tokens: list[int]) -> float:
    return float((-logprobs[:-1].gather(1, torch.tensor(tokens[1:])[:, None])).mean().exp())


def agreement(expected: Tensor, got: Tensor) -> float:
    """The share of positions whose likeliest token is the same."""
    return float((expected.argmax(-1) == got.argmax(-1)).float().mean())


def test_a_short_text_is_as_likely_as_in_float32(smollm2_path: Path, reference: Oracle) -> None:
    tokens = prose_tokens(smollm2_path, limit=SHORT)
    expected = reference.logits(tokens).log_softmax(-1)
    got = distribution(smollm2_path, tokens, EngineConfig(kv_bytes=256 << 20))
    assert 1e-6 < divergence(expected, got) < 0.005
    assert perplexity(got, tokens) == pytest.approx(perplexity(expected, tokens), rel=0.01)
    assert agreement(expected, got) > 0.94


@pytest.mark.slow
def test_a_long_text_loses_no_more_than_was_agreed(smollm2_path: Path, reference: Oracle) -> None:
    tokens = prose_tokens(smollm2_path)
    expected = reference.logits(tokens).log_softmax(-1)
    half = EngineConfig(dtype="bfloat16", kv_bytes=256 << 20)
    floor = agreement(expected, distribution(smollm2_path, tokens, half)) - 0.01
    for kv_dtype in ("bfloat16", "float32"):
        got = distribution(smollm2_path, tokens, EngineConfig(kv_bytes=256 << 20, kv_dtype=kv_dtype))
        assert divergence(expected, got) < 0.005
        assert perplexity(got, tokens) == pytest.approx(perplexity(expected, tokens), rel=0.01)
        assert agreement(expected, got) >= floor
