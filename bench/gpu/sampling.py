"""Rules for the sampler's kernels, and what the reference sampler makes of the same."""

import torch
from torch import Tensor

from local_engine.generation import GenerationRequest, TokenOutput
from local_engine.kernels.gpu.sampling import sampling_tensors
from local_engine.kernels.triton.sampling_rules import SamplingTensors
from local_engine.sampler import SamplerRow, sample
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence

__all__ = ["draws_of_the_reference", "sampling_rules"]


def _rows(count: int, *, drawn: bool) -> list[SamplerRow]:
    params = SamplingParams(temperature=0.8, top_k=50, top_p=0.95) if drawn else SamplingParams(temperature=0.0)
    return [
        SamplerRow(Sequence(GenerationRequest("r", (1,), params), 0, seed, frozenset(), 1)) for seed in range(count)
    ]


def sampling_rules(count: int, vocab: int, *, device: torch.device, drawn: bool) -> SamplingTensors:
    return sampling_tensors(_rows(count, drawn=drawn), vocab, histories=[-1] * count, device=device)


def draws_of_the_reference(logits: Tensor, *, drawn: bool) -> Tensor:
    found = sample(logits.float(), _rows(len(logits), drawn=drawn))
    return torch.tensor([token.token_id if isinstance(token, TokenOutput) else -1 for token in found]).to(logits.device)
