"""The likeliest tokens of each row with their log-probabilities, by taking the largest again and again."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.shape_logits import PART
from local_engine.kernels.triton.shapes import FLOATS, expect
from local_engine.sampler import LOGPROB_FLOOR
from local_engine.sampling import MAX_LOGPROBS

__all__ = ["top_logprobs"]

_LOGPROB_FLOOR = tl.constexpr(LOGPROB_FLOOR)


@triton.jit
def top_logprobs_kernel(
    values, ids, log_totals, top_values, top_ids, length, count, has_ids: tl.constexpr, has_totals: tl.constexpr,
    part_size: tl.constexpr,
):  # fmt: skip
    """The `count` largest of one part of one row, largest first, equal ones in the order of their ids.

    Grid: (B, length / part_size). Tile: the part, held in registers. Reads `length` numbers a row, and their ids where
    they have others than their places. Exact; log-probabilities differ from torch's by 1 ulp of the logit.
    """
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = part * part_size + tl.arange(0, part_size)
    value = tl.load(values + row * length + place, mask=place < length, other=float("-inf")).to(tl.float32)
    token = place
    if has_ids:
        token = tl.load(ids + row * length + place, mask=place < length, other=0)
    shift = tl.load(log_totals + row) if has_totals else 0.0
    left = place < length
    out = (row * tl.num_programs(1) + part) * count
    for index in range(count):
        top = tl.max(tl.where(left, value, float("-inf")), 0)
        # What is no number is never the largest: the row's state says what it is.
        first = tl.min(tl.where(left & (value == top), token, 0x7FFFFFFF), 0)
        told = tl.maximum(top - shift, _LOGPROB_FLOOR) if has_totals else top
        tl.store(top_values + out + index, told)
        tl.store(top_ids + out + index, tl.where(first == 0x7FFFFFFF, 0, first))
        left = left & ((token != first) | (value != top))


def top_logprobs(logits: Tensor, log_totals: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` likeliest tokens, best first: log-probabilities float32 and ids int32, [B, count].

    logits: [B, V], raw. log_totals: [B], as `DrawnTokens` has them. count: 1 to 256, at most V. Raises ValueError.
    """
    num_rows, vocab_size = logits.shape
    expect("logits", logits, (num_rows, vocab_size), FLOATS)
    expect("log_totals", log_totals, (num_rows,), (torch.float32,))
    if not 1 <= count <= min(MAX_LOGPROBS, vocab_size):
        raise ValueError(f"count: expected 1 to {min(MAX_LOGPROBS, vocab_size)}, got {count}")
    parts = triton.cdiv(vocab_size, PART)
    part_values = torch.empty(num_rows, parts * count, dtype=torch.float32, device=logits.device)
    part_ids = torch.empty(num_rows, parts * count, dtype=torch.int32, device=logits.device)
    values, ids = torch.empty_like(part_values[:, :count]), torch.empty_like(part_ids[:, :count])
    if num_rows:
        top_logprobs_kernel[(num_rows, parts)](
            logits, part_ids, log_totals, part_values, part_ids, vocab_size, count,
            has_ids=False, has_totals=False, part_size=PART, num_warps=8,
        )  # fmt: skip
        top_logprobs_kernel[(num_rows, 1)](
            part_values, part_ids, log_totals, values, ids, parts * count, count,
            has_ids=True, has_totals=True, part_size=max(triton.next_power_of_2(parts * count), 128), num_warps=8,
        )  # fmt: skip
    return values, ids
