"""How the rows of a step are sampled, as tensors of the device: parameters, masks, biases and the tokens seen so far.

A step's parameters are one array of records, so one transfer brings them; nothing in it waits for a token, so the host
can prepare a step while the device still draws the one before. What is not here: see `runs_on_device`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.sampler import SamplerRow, forbidden_ids, top_p_at

__all__ = [
    "IN_PROMPT",
    "SAMPLING_RULE",
    "SamplingTensors",
    "begin_history",
    "new_histories",
    "runs_on_device",
    "sampling_tensors",
]

SAMPLING_RULE = np.dtype(
    [
        ("seed", "<u8"),
        ("position", "<i8"),
        ("top_k", "<i8"),
        ("history", "<i8"),
        ("mask", "<i8"),
        ("temperature", "<f8"),
        ("top_p", "<f8"),
        ("log_min_p", "<f8"),
        ("repetition", "<f8"),
        ("presence", "<f8"),
        ("frequency", "<f8"),
    ]
)
"""One row. position: tokens of the answer before this one. top_k: 0 is off, top_p: 1 is off, log_min_p: -inf is off.

history: the row of the histories, -1 has none: no penalties. mask: the row of the masks, -1 allows all. temperature: 0
takes the likeliest.
"""

RULE_FIELDS = tl.constexpr(SAMPLING_RULE.itemsize // 8)
SEED, POSITION, TOP_K, HISTORY, MASK = (tl.constexpr(index) for index in range(5))
TEMPERATURE, TOP_P, LOG_MIN_P, REPETITION, PRESENCE, FREQUENCY = (tl.constexpr(index) for index in range(5, 11))

IN_PROMPT = 1 << 30
"""The bit of a history's number that says the token is in the prompt; those below it count it in the answer."""


@triton.jit
def rule_number(rules, row, field: tl.constexpr):
    """A floating-point field of a row's rule: float64."""
    return tl.load(rules + row * RULE_FIELDS + field).to(tl.float64, bitcast=True)


@dataclass(frozen=True, slots=True)
class SamplingTensors:
    """The rules of B rows. A runner with static buffers copies into one of these.

    rules: [B, fields] int64, the bytes of `SAMPLING_RULE`. masks: [M, ceil(V / 32)] int32: bit t % 32 of word t // 32
    allows token t. bias_starts: [B + 1] int32, where a row's biases begin among bias_ids, int32, and bias_values,
    float32; these two may be longer than what is used.
    """

    rules: Tensor
    masks: Tensor
    bias_starts: Tensor
    bias_ids: Tensor
    bias_values: Tensor


def runs_on_device(row: SamplerRow) -> bool:
    """False for what the reference sampler has and the kernels lack.

    That is typical_p, listed log-probabilities, beams, and penalties that count guessed tokens.
    """
    sampling = row.sampling
    return (
        sampling.typical_p >= 1.0
        and not sampling.logprob_token_ids
        and not sampling.beam_search
        and not (row.draft and row.sequence.penalised)
    )


def sampling_tensors(
    rows: Sequence[SamplerRow], vocab_size: int, *, histories: Sequence[int], device: torch.device
) -> SamplingTensors:
    """What `sample_tokens` draws these rows by. histories: each row's own among the histories, -1 where it has none."""
    rules = np.zeros(len(rows), SAMPLING_RULE)
    masks: list[npt.NDArray[np.uint32]] = []
    starts, ids, values = [0], [0], [0.0]  # an entry more than is used: no buffer is empty
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
        starts.append(len(ids) - 1)
    words = np.stack(masks) if masks else np.zeros((1, -(-vocab_size // 32)), np.uint32)
    return SamplingTensors(
        torch.from_numpy(rules.view(np.int64).reshape(len(rows), RULE_FIELDS.value)).to(device),
        torch.from_numpy(words.view(np.int32)).to(device),
        torch.tensor(starts, dtype=torch.int32, device=device),
        torch.tensor([*ids[1:], 0], dtype=torch.int32, device=device),
        torch.tensor([*values[1:], 0.0], dtype=torch.float32, device=device),
    )


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


def new_histories(slots: int, vocab_size: int, *, device: torch.device) -> Tensor:
    """The tokens that `slots` sequences have seen: [slots, V] int32, none yet. 0.6 MB a slot at 152,000 tokens."""
    return torch.zeros(slots, vocab_size, dtype=torch.int32, device=device)


def begin_history(histories: Tensor, slot: int, prompt: Tensor, answer: Tensor) -> None:
    """Makes a slot that of a sequence with this prompt and this answer so far, both int64; draws go on counting."""
    history = histories[slot]
    history.zero_()
    history.index_add_(0, answer, torch.ones_like(answer, dtype=torch.int32))
    history[prompt] |= IN_PROMPT
