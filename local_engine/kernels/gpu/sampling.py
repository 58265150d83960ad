"""What the rows of a step ask of the sampler, as the tensors that its kernels read. Never waits for the device."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from local_engine.kernels.triton.sampling_rules import SAMPLING_RULE, SamplingTensors
from local_engine.sampler import SamplerRow, forbidden_ids, top_p_at
from local_engine.transfers import to_device

__all__ = ["runs_on_device", "sampling_tensors"]


def runs_on_device(row: SamplerRow) -> bool:
    """False for what the reference sampler has and the kernels lack.

    That is samplers beyond min_p, DRY, listed log-probabilities, beams, and penalties of the last tokens alone or of
    guessed ones.
    """
    sampling = row.sampling
    return (
        not sampling.drawn_apart
        and sampling.dry is None
        and not sampling.logprob_token_ids
        and not sampling.beam_search
        and not (row.sequence.penalised and (row.draft or sampling.repeat_last_n is not None))
    )


def sampling_tensors(
    rows: Sequence[SamplerRow], vocab_size: int, *, histories: Sequence[int], device: torch.device
) -> SamplingTensors:
    """What `sample_tokens` draws these rows by. histories: each row's own among the histories, -1 where it has none."""
    rules = np.zeros(len(rows), SAMPLING_RULE)
    masks: list[npt.NDArray[np.uint32]] = []
    starts = [0]
    ids: list[int] = []
    values: list[float] = []
    for rule, row, history in zip(rules, rows, histories, strict=True):
        sampling = row.sampling
        rule["seed"], rule["position"] = row.sequence.seed & 0xFFFFFFFFFFFFFFFF, row.position
        rule["top_k"], rule["top_p"] = sampling.top_k, top_p_at(sampling, row.position)
        rule["log_min_p"] = math.log(sampling.min_p) if sampling.min_p > 0.0 else -math.inf
        rule["temperature"] = 0.0 if sampling.greedy else sampling.temperature
        rule["history"] = history if row.sequence.penalised else -1
        rule["repetition"] = sampling.repetition_penalty
        rule["presence"], rule["frequency"] = sampling.presence_penalty, sampling.frequency_penalty
        mask = _mask(row, vocab_size)
        rule["mask"] = -1 if mask is None else len(masks)
        if mask is not None:
            masks.append(mask)
        ids += sampling.logit_bias.keys()
        values += sampling.logit_bias.values()
        starts.append(len(ids))
    if not ids:
        ids, values = [0], [0.0]  # no buffer is empty
    words = np.stack(masks) if masks else np.zeros((1, -(-vocab_size // 32)), np.uint32)
    return SamplingTensors(
        _rules_on(device, rules),
        to_device(words.view(np.int32), device),
        to_device(np.array(starts, np.int32), device),
        to_device(np.array(ids, np.int32), device),
        to_device(np.array(values, np.float32), device),
    )


def _rules_on(device: torch.device, rules: npt.NDArray[np.void]) -> Tensor:
    return to_device(rules.view(np.int64).reshape(len(rules), SAMPLING_RULE.itemsize // 8), device)


def _mask(row: SamplerRow, vocab_size: int) -> npt.NDArray[np.uint32] | None:
    """The request's mask, its allowed tokens and its forbidden ones in one; None if any token may come."""
    forbidden, allowed = forbidden_ids(row), row.sampling.allowed_token_ids
    if row.mask is None and allowed is None and not forbidden:
        return None
    bits = np.ones(-(-vocab_size // 32) * 32, np.bool_)
    if allowed is not None:
        bits[:] = False
        bits[list(allowed)] = True
    bits[forbidden] = False
    words: npt.NDArray[np.uint32] = np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32, copy=False)
    return words if row.mask is None else words & row.mask[: len(words)]
