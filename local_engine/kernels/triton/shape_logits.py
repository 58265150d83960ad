"""Logits as the next token is drawn from: with bias, penalties and masks, and what is told of the raw ones on the way.

Every row is cut into parts, each a program of its own, so that few rows fill the device too. Later kernels join the
parts' numbers themselves.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.sampling_rules import (
    FREQUENCY,
    HISTORY,
    IN_PROMPT,
    MASK,
    PRESENCE,
    REPETITION,
    RULE_FIELDS,
    TEMPERATURE,
    SamplingTensors,
    rule_number,
)
from local_engine.kernels.triton.shapes import FLOATS, expect

__all__ = ["CANDIDATES", "PART", "ShapedLogits", "shape_logits"]

PART = 2048
"""Tokens of a part."""
CANDIDATES = 4096
"""Numbers behind a row's V: room for the likeliest of them side by side, see `draw_tokens`."""

_COUNT_BITS = tl.constexpr(IN_PROMPT - 1)


@dataclass(frozen=True, slots=True)
class ShapedLogits:
    """values: [B, V + CANDIDATES] float32, of which the first V are the shaped logits of rows that are drawn.

    By part, [B, parts]: raw_largest and raw_total, float32, the largest raw logit (NaN if one is not a number, or
    infinite) and the sum of exp(raw - raw_largest); largest, float32, and likeliest, int32, the largest shaped logit
    and its first token.
    """

    values: Tensor
    raw_largest: Tensor
    raw_total: Tensor
    largest: Tensor
    likeliest: Tensor


@triton.jit
def shape_logits_kernel(
    logits,
    rules,
    histories,
    masks,
    bias_starts,
    bias_ids,
    bias_values,
    values,
    raw_largest,
    raw_total,
    largest,
    likeliest,
    vocab_size,
    values_stride,
    mask_words,
    part_size: tl.constexpr,
):
    """One part of one row.

    Grid: (B, V / part_size). Tile: the part. Reads the V logits of a row, its history and mask where it has them, and
    writes V float32 where it is drawn. Computes in float32. Differs from the reference sampler by 2 ulp.
    """
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = part * part_size + tl.arange(0, part_size)
    inside = token < vocab_size
    value = tl.load(logits + row * vocab_size + token, mask=inside, other=float("-inf")).to(tl.float32)
    part_at = row * tl.num_programs(1) + part
    top = tl.max(value, 0)
    is_spoiled = tl.max(((value != value) | (value == float("inf"))).to(tl.int32), 0) > 0
    # An infinity less itself is not a number.
    shift = tl.where(is_spoiled | (top == float("-inf")), 0.0, top)
    tl.store(raw_largest + part_at, tl.where(is_spoiled, float("nan"), top))
    tl.store(raw_total + part_at, tl.sum(tl.exp(tl.where(is_spoiled, 0.0, value - shift)), 0))

    for entry in range(tl.load(bias_starts + row), tl.load(bias_starts + row + 1)):
        biased = token == tl.load(bias_ids + entry)
        value = tl.where(biased, value + tl.load(bias_values + entry), value)
    history = tl.load(rules + row * RULE_FIELDS + HISTORY)
    if history >= 0:
        seen = tl.load(histories + history * vocab_size + token, mask=inside, other=0)
        penalty = rule_number(rules, row, REPETITION).to(tl.float32)
        repeated = tl.where(value > 0.0, value / penalty, value * penalty)
        value = tl.where(seen != 0, repeated, value)
        times = (seen & _COUNT_BITS).to(tl.float32)
        presence = rule_number(rules, row, PRESENCE).to(tl.float32)
        frequency = rule_number(rules, row, FREQUENCY).to(tl.float32)
        value = tl.where(times > 0.0, value - (presence + frequency * times), value)
    mask = tl.load(rules + row * RULE_FIELDS + MASK)
    if mask >= 0:
        word = tl.load(masks + mask * mask_words + token // 32, mask=inside, other=0)
        value = tl.where((word >> (token % 32)) & 1 != 0, value, float("-inf"))
    # Of a greedy row nobody reads more than what is told of its parts.
    if rule_number(rules, row, TEMPERATURE) > 0.0:
        tl.store(values + row * values_stride + token, value, mask=inside)
    top = tl.max(value, 0)
    tl.store(largest + part_at, top)
    tl.store(likeliest + part_at, tl.min(tl.where(value == top, token, vocab_size - 1), 0))


def shape_logits(
    logits: Tensor, rules: SamplingTensors, *, histories: Tensor | None = None, values: Tensor | None = None
) -> ShapedLogits:
    """logits [B, V], which are left as they are -> what `draw_tokens` takes.

    histories: see `new_histories`; needed if a rule names one. values: a buffer for `ShapedLogits.values`, else a new
    one. Raises ValueError for wrong shapes and types.
    """
    if logits.ndim != 2 or not logits.shape[1]:
        raise ValueError(f"logits: expected [B, V], got {tuple(logits.shape)}")
    num_rows, vocab_size = logits.shape
    expect("logits", logits, (num_rows, vocab_size), FLOATS)
    mask_words = triton.cdiv(vocab_size, 32)
    expect("rules.rules", rules.rules, (num_rows, RULE_FIELDS.value), (torch.int64,))
    expect("rules.masks", rules.masks, (len(rules.masks), mask_words), (torch.int32,))
    expect("rules.bias_starts", rules.bias_starts, (num_rows + 1,), (torch.int32,))
    expect("rules.bias_ids", rules.bias_ids, (len(rules.bias_ids),), (torch.int32,))
    expect("rules.bias_values", rules.bias_values, (len(rules.bias_ids),), (torch.float32,))
    if histories is not None:
        expect("histories", histories, (len(histories), vocab_size), (torch.int32,))
    if values is None:
        values = torch.empty(num_rows, vocab_size + CANDIDATES, dtype=torch.float32, device=logits.device)
    expect("values", values, (num_rows, vocab_size + CANDIDATES), (torch.float32,))
    parts = triton.cdiv(vocab_size, PART)
    raw_largest, raw_total, largest = torch.empty(3, num_rows, parts, dtype=torch.float32, device=logits.device)
    likeliest = torch.empty(num_rows, parts, dtype=torch.int32, device=logits.device)
    if num_rows:
        shape_logits_kernel[(num_rows, parts)](
            logits,
            rules.rules,
            rules.rules if histories is None else histories,
            rules.masks,
            rules.bias_starts,
            rules.bias_ids,
            rules.bias_values,
            values,
            raw_largest,
            raw_total,
            largest,
            likeliest,
            vocab_size,
            values.shape[1],
            mask_words,
            part_size=PART,
            num_warps=8,
        )
    return ShapedLogits(values, raw_largest, raw_total, largest, likeliest)
