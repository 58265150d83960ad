"""Drawing on the device: the very tokens of the sampler."""

from dataclasses import replace

import pytest
import torch

from local_engine.executor import Draw
from local_engine.generation import GenerationRequest, TokenOutput
from local_engine.kernels.gpu.draw import draw_tokens
from local_engine.sampler import SamplerRow, sample
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence

pytest.importorskip("triton", reason="Triton is not installed: it has wheels for Linux only")

PARAMS = (
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.3, top_k=5),
    SamplingParams(temperature=2.0, top_k=10_000),
    SamplingParams(temperature=1.0, top_p=0.3),
    SamplingParams(temperature=1.5, top_k=20, top_p=0.8, min_p=0.02),
    SamplingParams(temperature=1.0, min_p=0.5),
    SamplingParams(temperature=0.00002, top_p=0.5),
)


def _row(sampling: SamplingParams, seed: int, generated: int) -> tuple[SamplerRow, Draw]:
    sequence = Sequence(GenerationRequest("r", (1,), replace(sampling, seed=seed)), 0, seed, frozenset(), 99)
    for _ in range(generated):
        sequence.append(2)
    temperature = 0.0 if sampling.greedy else sampling.temperature
    draw = Draw(temperature, sampling.top_k, sampling.top_p, sampling.min_p, seed, generated)
    return SamplerRow(sequence), draw


@pytest.mark.parametrize("params", [PARAMS, PARAMS[:1]], ids=["mixed", "greedy alone"])
def test_tokens_are_those_of_the_sampler(params: tuple[SamplingParams, ...]) -> None:
    generator = torch.Generator().manual_seed(3)
    for trial in range(12):
        pairs = [_row(sampling, 100 * trial + index, trial) for index, sampling in enumerate(params)]
        logits = 4 * torch.randn(len(pairs), 777, generator=generator)
        drawn = draw_tokens(logits.clone(), [draw for _, draw in pairs])
        expected = sample(logits.clone(), [row for row, _ in pairs])
        assert [TokenOutput(token, None, ()) for token in drawn.tolist()] == expected


@pytest.mark.parametrize("fault", [torch.nan, torch.inf])
def test_rows_that_are_not_finite_are_told_and_change_no_other(fault: float) -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    draws = [Draw(1.0, 0, 0.9, 0.0, seed, 0) for seed in range(3)]
    sound = draw_tokens(logits.clone(), draws).tolist()
    logits[1, 7] = fault
    assert draw_tokens(logits, draws).tolist() == [sound[0], -1, sound[2]]
