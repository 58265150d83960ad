"""How the rows of a step are sampled, as tensors of the device: parameters, masks, biases and the tokens seen so far.

A step's parameters are one array of records, so one transfer brings them; nothing in it waits for a token, so the host
can prepare a step while the device still draws the one before. `kernels.gpu.sampling` fills them in.
"""

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = [
    "IN_PROMPT",
    "SAMPLING_RULE",
    "SamplingTensors",
    "begin_history",
    "new_histories",
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


def new_histories(slots: int, vocab_size: int, *, device: torch.device) -> Tensor:
    """The tokens that `slots` sequences have seen: [slots, V] int32, none yet. 0.6 MB a slot at 152,000 tokens."""
    return torch.zeros(slots, vocab_size, dtype=torch.int32, device=device)


def begin_history(histories: Tensor, slot: int, prompt: Tensor, answer: Tensor) -> None:
    """Makes a slot that of a sequence with this prompt and this answer so far, both int64; draws go on counting."""
    history = histories[slot]
    history.zero_()
    history.index_add_(0, answer, torch.ones_like(answer, dtype=torch.int32))
    history[prompt] |= IN_PROMPT
