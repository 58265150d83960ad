"""Drawing on the kernels against the sampler's own arithmetic in torch, which takes rows that lie apart."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from local_engine.generation import GenerationRequest, TokenOutput
from local_engine.kernels.cpu.draw import draw, library_for, likeliest, top_logits
from local_engine.kernels.cpu.library import DRAW_RULE
from local_engine.logprobs import score
from local_engine.sampler import SamplerRow, sample
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence
from tests.local_engine.kernels.cpu.libraries import runnable_libraries

LIBRARIES = [pytest.param(library, id=library.instruction_set) for library in runnable_libraries()]


def rows_of(count: int, **sampling: Any) -> list[SamplerRow]:
    requests = (GenerationRequest("r", (1, 2), SamplingParams(**sampling)) for _ in range(count))
    return [SamplerRow(Sequence(request, 0, seed, frozenset(), 9)) for seed, request in enumerate(requests)]


def apart(logits: Tensor) -> Tensor:
    """The same numbers, which the kernels do not take."""
    columns = logits.t().contiguous().t()
    assert library_for(columns) is None
    return columns


def tokens_of(logits: Tensor, rows: list[SamplerRow]) -> list[int]:
    outputs = sample(logits, rows)
    assert all(isinstance(output, TokenOutput) for output in outputs), outputs
    return [output.token_id for output in outputs if isinstance(output, TokenOutput)]


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"top_k": 1},
        {"top_k": 40},
        {"top_k": 900},
        {"top_p": 0.9},
        {"top_p": 0.999},
        {"top_p": 1e-6},
        {"min_p": 0.1},
        {"top_k": 50, "top_p": 0.8},
        {"top_k": 50, "top_p": 0.8, "min_p": 0.05},
    ],
    ids=str,
)
@pytest.mark.parametrize("spread", [0.2, 4.0])
def test_it_draws_what_torch_draws(rule: dict[str, Any], spread: float) -> None:
    torch.manual_seed(1)
    rows = rows_of(200, temperature=0.7, **rule)
    logits = torch.randn(200, 1003) * spread
    logits[:, ::7] = logits[:, 3:4]  # ties
    logits[5, :900] = -torch.inf
    drawn, expected = tokens_of(logits.clone(), rows), tokens_of(apart(logits), rows)
    # Sums of other orders differ by 1e-7: a draw that falls so near to an edge may land on the other side.
    assert sum(a != b for a, b in zip(drawn, expected, strict=True)) <= 1


def test_a_row_is_drawn_the_same_beside_one_whose_samplers_the_kernels_lack() -> None:
    logits = torch.randn(400, 1003, generator=torch.Generator().manual_seed(1)) * 0.2
    plain = rows_of(400, top_p=0.9)
    others = [row if index % 2 else rows_of(1, typical_p=0.9)[0] for index, row in enumerate(plain)]
    assert tokens_of(logits.clone(), others)[1::2] == tokens_of(logits.clone(), plain)[1::2]


@settings(max_examples=50)
@given(
    vocab_size=st.integers(1, 3000),
    top_k=st.integers(0, 100),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 1.0),
    noise=st.floats(0.0, 1.0, exclude_max=True),
    seed=st.integers(0, 2**31),
)
def test_what_it_draws_is_never_ruled_out(
    vocab_size: int, top_k: int, top_p: float, min_p: float, noise: float, seed: int
) -> None:
    logits = torch.randn(1, vocab_size, generator=torch.Generator().manual_seed(seed)) * 5
    logits[0, 1::3] = -torch.inf
    rule = (noise, top_p, 0.9, math.log(min_p) if min_p > 0 else -math.inf, top_k, 0)
    for library in runnable_libraries():
        token = int(draw(library, logits, np.array([rule], dtype=DRAW_RULE))[0])
        assert torch.isfinite(logits[0, token])
        better = int((logits[0] > logits[0, token]).sum())
        assert top_k in (0, better) or better < top_k
        weights = (logits[0] / 0.9).double().softmax(-1)
        assert weights[logits[0] > logits[0, token]].sum() < top_p + 1e-4
        assert weights[token] >= weights.max() * min_p * 0.999


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_likeliest_is_the_first_of_the_largest_and_shows_what_is_no_number(library: Any) -> None:
    logits = torch.randn(7, 1001)
    logits[0, [400, 7, 1000]] = 9.0
    logits[1, 1000] = 9.0
    logits[2, 5] = torch.nan
    logits[3, 1000] = torch.nan
    logits[4, 6] = torch.inf
    logits[5] = -torch.inf
    logits[6, 3] = -torch.inf
    largest, tokens = likeliest(library, logits)
    assert tokens[:2].tolist() == [7, 1000]
    assert largest[:2].tolist() == [9.0, 9.0]
    assert largest[2:4].isnan().all()
    assert largest[4:6].tolist() == [math.inf, -math.inf]
    assert (float(largest[6]), int(tokens[6])) == (float(logits[6].max()), int(logits[6].argmax()))


@pytest.mark.parametrize(
    "asked",
    [
        {"logprobs": 5},
        {"logprobs": 0, "logprob_token_ids": (7, 3, 7, 900)},
        {"logprobs": 3, "logit_bias": {5: 9.0}, "min_tokens": 2},
        {"logprobs": 256},
    ],
    ids=str,
)
def test_it_reports_the_log_probabilities_that_torch_does(asked: dict[str, Any]) -> None:
    torch.manual_seed(2)
    logits = torch.randn(9, 1003) * 4
    logits[:, ::7] = logits[:, 3:4]  # ties
    logits[3] = 1.0
    logits[4, 1::2] = -torch.inf
    rows = [*rows_of(6, temperature=0.8, **asked), *rows_of(3, temperature=0.0, logprobs=1)]
    got, expected = sample(logits.clone(), rows), sample(apart(logits), rows)
    assert_alike(got, expected)
    assert sample(logits[4:5].clone(), rows[4:5]) == got[4:5]  # alone as beside others, exactly
    targets = [token.token_id for token in got if isinstance(token, TokenOutput)]
    assert_alike(score(logits, targets, 4), score(apart(logits), targets, 4))


def assert_alike(got: list[Any], expected: list[Any]) -> None:
    for mine, other in zip(got, expected, strict=True):
        assert mine.token_id == other.token_id
        assert mine.logprob == pytest.approx(other.logprob, abs=2e-6)
        assert [logprob for _, logprob in mine.top] == pytest.approx([logprob for _, logprob in other.top], abs=2e-6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_top_logits_are_in_order_and_of_equal_ones_the_first(library: Any) -> None:
    logits = torch.randn(4, 777)
    logits[0, [600, 5, 40, 776]] = 9.0
    logits[1, 9] = torch.nan
    logits[2] = -torch.inf
    logits[2, [6, 500]] = torch.tensor([1.0, 2.0])
    found = top_logits(library, logits, 3)
    assert found.tokens[0].tolist() == [5, 40, 600]
    assert np.isnan(found.values[1]).all()
    assert (found.tokens[2, :2].tolist(), found.values[2].tolist()) == ([500, 6], [2.0, 1.0, -math.inf])
    values, ids = logits[3].topk(3)
    assert (found.tokens[3].tolist(), found.values[3].tolist()) == (ids.tolist(), values.tolist())
    expected = logits[3].logsumexp(-1) - logits[3].max()
    assert (float(found.largest[3, 0]), float(found.log_sum[3, 0])) == pytest.approx(
        (float(values[0]), float(expected))
    )
    assert top_logits(library, logits, 0).tokens.shape == (4, 0)


def test_as_many_rules_as_rows_are_needed() -> None:
    with pytest.raises(ValueError, match="2 rows of logits need as many rules"):
        draw(runnable_libraries()[0], torch.zeros(2, 5), np.zeros(1, dtype=DRAW_RULE))
