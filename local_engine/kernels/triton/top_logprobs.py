"""The likeliest tokens of each row with their log-probabilities, by taking the largest again and again."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.shape_logits import PART
from local_engine.kernels.triton.shapes import FLOATS, expect
from local_engine.logprobs import LOGPROB_FLOOR
from local_engine.sampling import MAX_LOGPROBS

__all__ = ["top_logprobs"]

_LOGPROB_FLOOR = tl.constexpr(LOGPROB_FLOOR)


@triton.jit
def top_logprobs_kernel(
    values, ids, log_totals, top_values, top_ids, length, count, has_ids: tl.constexpr, has_totals: tl.constexpr,
    part_size: tl.constexpr,
):  # fmt: skip
    """The `count` largest of one part of one row, largest first, equal ones in the order of their ids; then -1.

    Runs over the logits, then over what it found, until that is one part.
    Grid: (B, length / part_size). Tile: the part, held in registers. Reads `length` numbers a row, and their ids where
    they have others than their places. Exact; log-probabilities differ from torch's by 1 ulp of the logit.
    """
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = part * part_size + tl.arange(0, part_size)
    value = tl.load(values + row * length + place, mask=place < length, other=float("-inf")).to(tl.float32)
    token = tl.load(ids + row * length + place, mask=place < length, other=-1) if has_ids else place
    shift = tl.load(log_totals + row) if has_totals else 0.0
    left = (place < length) & (token >= 0)
    out = (row * tl.num_programs(1) + part) * count
    for index in range(count):
        top = tl.max(tl.where(left, value, float("-inf")), 0)
        first = tl.min(tl.where(left & (value == top), token, 0x7FFFFFFF), 0)
        told = tl.maximum(top - shift, _LOGPROB_FLOOR) if has_totals else top
        tl.store(top_values + out + index, told)
        tl.store(top_ids + out + index, tl.where(first == 0x7FFFFFFF, -1, first))
        left = left & ((token != first) | (value != top))


def top_logprobs(logits: Tensor, log_totals: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` likeliest tokens, best first: log-probabilities float32 and ids int32, [B, count].

    logits: [B, V], raw; what is not a number is left out, and -1 stands for what is missing then. log_totals: [B],
    as `DrawnTokens` has them. count: 1 to 256, at most V. Raises ValueError.
    """
    num_rows, vocab_size = logits.shape
    expect("logits", logits, (num_rows, vocab_size), FLOATS)
    expect("log_totals", log_totals, (num_rows,), (torch.float32,))
    if not 1 <= count <= min(MAX_LOGPROBS, vocab_size):
        raise ValueError(f"count: expected 1 to {min(MAX_LOGPROBS, vocab_size)}, got {count}")
    values, ids, length = logits, logits, vocab_size
    while num_rows:
        parts = triton.cdiv(length, PART)
        part_values = torch.empty(num_rows, parts * count, dtype=torch.float32, device=logits.device)
        part_ids = torch.empty(num_rows, parts * count, dtype=torch.int32, device=logits.device)
        top_logprobs_kernel[(num_rows, parts)](
            values, ids, log_totals, part_values, part_ids, length, count,
            has_ids=ids is not logits, has_totals=parts == 1, part_size=PART, num_warps=8,
        )  # fmt: skip
        values, ids, length = part_values, part_ids, parts * count
        if parts == 1:
            return values, ids
    return torch.empty(0, count, device=logits.device), torch.empty(0, count, dtype=torch.int32, device=logits.device)
