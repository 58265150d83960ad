"""Tokens from shaped logits: temperature, top_k, top_p, min_p, and a draw by (seed, position); no row is ever sorted.

A cut is the smallest logit that is kept. It is found bit by bit among the row's likeliest tokens, which were gathered
side by side for it: those within so many nats of the largest that they hold enough tokens, or enough weight. The draw
is the reference sampler's: the same noise (Philox, Salmon et al. 2011) through the inverse of the cumulative weights in
the order of token ids, in float64.
"""

from dataclasses import dataclass
from enum import IntEnum

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.sampling_rules import (
    HISTORY,
    LOG_MIN_P,
    POSITION,
    RULE_FIELDS,
    SEED,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    SamplingTensors,
    rule_number,
)
from local_engine.kernels.triton.shape_logits import CANDIDATES, PART, ShapedLogits
from local_engine.kernels.triton.shapes import expect
from local_engine.logprobs import LOGPROB_FLOOR

__all__ = ["DrawnTokens", "RowState", "draw_tokens"]

# Depths below the largest logit at which tokens are counted and weighed: 1, 2, 4, 7, 11, 16, 22 and 29 nats.
_DEPTHS = 8
# Candidates that a cut looks at together: twice as many would not stay in registers.
_CUT_TILE = 2048
_LOGPROB_FLOOR = tl.constexpr(LOGPROB_FLOOR)
_INFINITE = tl.constexpr(0x7F800000)


class RowState(IntEnum):
    """What became of a row. NOT_FINITE: its logits are no numbers. NOTHING_ALLOWED: its mask left no token."""

    DRAWN = 0
    NOT_FINITE = 1
    NOTHING_ALLOWED = 2


@dataclass(frozen=True, slots=True)
class DrawnTokens:
    """All [B]. token_ids: int64, 0 where there is none. states: int32, of `RowState`. logprobs: float32, each token's.

    log_totals: float32, what the raw logits are to be lessened by to be log-probabilities.
    """

    token_ids: Tensor
    states: Tensor
    logprobs: Tensor
    log_totals: Tensor


@triton.jit
def weigh_kernel(
    rules, values, largest, counts, masses, totals, vocab_size, values_stride, part_size: tl.constexpr,
    parts: tl.constexpr, depths: tl.constexpr,
):  # fmt: skip
    """One part of one row: logits become (logit - largest) / temperature, in place, and are counted and weighed.

    Grid: (B, V / part_size). Reads and writes V float32 a row; nothing for a greedy one. Weights are float32, their
    sums float64: of all, and in rows that are cut of those within each depth.
    """
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    temperature = rule_number(rules, row, TEMPERATURE).to(tl.float32)
    if temperature <= 0.0:
        return
    num_parts = tl.num_programs(1)
    at_part = tl.arange(0, parts)
    top = tl.max(tl.load(largest + row * num_parts + at_part, mask=at_part < num_parts, other=float("-inf")), 0)
    token = part * part_size + tl.arange(0, part_size)
    inside = token < vocab_size
    at = values + row * values_stride + token
    top = tl.where(tl.abs(top) == float("inf"), 0.0, top)  # such a row gets no token
    value = tl.load(at, mask=inside, other=float("-inf")) - top
    value = tl.div_rn(value, tl.zeros([part_size], tl.float32) + temperature)
    tl.store(at, value, mask=inside)
    weight = tl.exp(value).to(tl.float64)
    part_at = row * num_parts + part
    tl.store(totals + part_at, tl.sum(weight, 0))
    top_k = tl.load(rules + row * RULE_FIELDS + TOP_K)
    if ((top_k > 0) & (top_k < vocab_size)) | (rule_number(rules, row, TOP_P) < 1.0):
        for index in tl.static_range(depths):
            kept = value >= -(1.0 + index * (index + 1) // 2)
            tl.store(counts + part_at * depths + index, tl.sum(kept.to(tl.int32), 0))
            tl.store(masses + part_at * depths + index, tl.sum(tl.where(kept, weight, 0.0), 0))


@triton.jit
def gather_kernel(
    rules, values, counts, masses, totals, lists, vocab_size, values_stride, room, part_size: tl.constexpr,
    parts: tl.constexpr, depths: tl.constexpr,
):  # fmt: skip
    """One part of one row that is cut: its share of the likeliest tokens goes behind the row's V numbers, in order.

    Grid: (B, V / part_size). Reads V float32 a row. `lists` gets where the row's candidates begin and how many they
    are: all V where no depth has both enough and no more than there is room for.
    """
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    temperature = rule_number(rules, row, TEMPERATURE)
    top_k = tl.load(rules + row * RULE_FIELDS + TOP_K)
    top_p = rule_number(rules, row, TOP_P)
    has_top_k = (top_k > 0) & (top_k < vocab_size)
    if (temperature <= 0.0) | ((has_top_k == 0) & (top_p >= 1.0)):
        return
    num_parts = tl.num_programs(1)
    at_part, depth = tl.arange(0, parts), tl.arange(0, depths)
    there = at_part < num_parts
    part_at = row * num_parts + at_part
    total = tl.sum(tl.load(totals + part_at, mask=there, other=0.0), 0)
    by_depth = part_at[:, None] * depths + depth[None, :]
    within = tl.load(counts + by_depth, mask=there[:, None], other=0)
    mass = tl.sum(tl.load(masses + by_depth, mask=there[:, None], other=0.0), 0)
    count = tl.sum(within, 0)
    # A little more than the mass: sums in another order must not miss it.
    enough = tl.where(has_top_k, count >= top_k, mass >= top_p * total * (1.0 + 1e-9))
    chosen = tl.min(tl.where(enough & (count <= room), depth, depths), 0)
    found = chosen < depths
    if part == 0:
        tl.store(lists + row * 2, tl.where(found, vocab_size, 0))
        tl.store(lists + row * 2 + 1, tl.where(found, tl.sum(tl.where(depth == chosen, count, 0), 0), vocab_size))
    if found:
        mine = (at_part < part)[:, None] & (depth == chosen)[None, :]
        before = tl.sum(tl.sum(tl.where(mine, within, 0), 0), 0)
        token = part * part_size + tl.arange(0, part_size)
        own = values + row * values_stride
        value = tl.load(own + token, mask=token < vocab_size, other=float("-inf"))
        kept = value >= -(1.0 + (chosen * (chosen + 1) // 2).to(tl.float32))
        place = vocab_size + before + tl.cumsum(kept.to(tl.int32), 0) - 1
        tl.store(own + place, value, mask=kept)


@triton.jit
def _last_key(values, length, needed, by_mass: tl.constexpr, tile: tl.constexpr):
    """The largest key that those before it leave wanting: they are fewer than `needed`, or weigh less.

    A key is the bits of -number. Two of its bits are found at a time.
    """
    key = tl.full([], 0, tl.uint32)
    digit = tl.arange(0, 4).to(tl.uint32)
    for shift in range(30, -1, -2):
        bound = key | (digit << shift)
        found = tl.full([4], 0.0, tl.float64)
        for base in range(0, length, tile):
            at = base + tl.arange(0, tile)
            value = tl.load(values + at, mask=at < length, other=float("-inf"))[:, None]
            before = tl.abs(value).to(tl.uint32, bitcast=True) < bound[None, :]
            if by_mass:
                share = tl.where(before, tl.exp(value), 0.0).to(tl.float64)
            else:
                share = before.to(tl.float64)
            found += tl.sum(share, 0)
        last = tl.sum((found < needed).to(tl.int32), 0) - 1
        key |= tl.maximum(last, 0).to(tl.uint32) << shift
    # Beyond are the bits of what is no number.
    return tl.minimum(key, _INFINITE)


@triton.jit
def _weight_to(values, length, last_key, tile: tl.constexpr):
    """What all with a key up to `last_key` weigh: float64."""
    weight = tl.full([tile], 0.0, tl.float64)
    for base in range(0, length, tile):
        at = base + tl.arange(0, tile)
        value = tl.load(values + at, mask=at < length, other=float("-inf"))
        kept = tl.abs(value).to(tl.uint32, bitcast=True) <= last_key
        weight += tl.where(kept, tl.exp(value), 0.0).to(tl.float64)
    return tl.sum(weight, 0)


@triton.jit
def cut_kernel(
    rules, values, totals, lists, floors, vocab_size, values_stride, num_parts, parts: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """The smallest number that one row keeps.

    Grid: (B,). Tile: the candidates. Reads them 16 times for each of top_k and top_p, from the L1 cache where there are
    no more than `tile`. Sums in float64. Differs from the reference sampler where a weight at a cut is a rounding away.
    """
    row = tl.program_id(0).to(tl.int64)
    if rule_number(rules, row, TEMPERATURE) <= 0.0:
        return
    top_k = tl.load(rules + row * RULE_FIELDS + TOP_K)
    top_p = rule_number(rules, row, TOP_P)
    has_top_k = (top_k > 0) & (top_k < vocab_size)
    floor = rule_number(rules, row, LOG_MIN_P).to(tl.float32)
    if has_top_k | (top_p < 1.0):
        at_part = tl.arange(0, parts)
        mass = tl.sum(tl.load(totals + row * num_parts + at_part, mask=at_part < num_parts, other=0.0), 0)
        start, length = tl.load(lists + row * 2), tl.load(lists + row * 2 + 1)
        candidates = values + row * values_stride + start
        key = tl.full([], _INFINITE, tl.uint32)
        if has_top_k:
            key = _last_key(candidates, length, top_k.to(tl.float64), False, tile)
            mass = _weight_to(candidates, length, key, tile)
        if top_p < 1.0:
            key = tl.minimum(key, _last_key(candidates, length, top_p * mass, True, tile))
        floor = tl.maximum(floor, -key.to(tl.float32, bitcast=True))
    tl.store(floors + row, floor)


@triton.jit
def weigh_kept_kernel(rules, values, floors, totals, vocab_size, values_stride, part_size: tl.constexpr):
    """The weight of what one part of one row keeps.

    Grid: (B, V / part_size). Reads V float32 a row; nothing for a greedy one, or one that keeps all. Sums in float64.
    """
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if rule_number(rules, row, TEMPERATURE) <= 0.0:
        return
    floor = tl.load(floors + row)
    if floor == float("-inf"):
        return
    token = part * part_size + tl.arange(0, part_size)
    value = tl.load(values + row * values_stride + token, mask=token < vocab_size, other=float("-inf"))
    weight = tl.where(value >= floor, tl.exp(value), 0.0).to(tl.float64)
    tl.store(totals + row * tl.num_programs(1) + part, tl.sum(weight, 0))


@triton.jit
def _uniform(seed, position):
    """`local_engine.philox.uniforms`, the same 52 bits: float64."""
    zero = tl.zeros_like(position).to(tl.uint32)
    high, low, _, _ = tl.philox_impl(
        position.to(tl.uint32),
        (position >> 32).to(tl.uint32),
        zero,
        zero,
        seed.to(tl.uint32),
        (seed >> 32).to(tl.uint32),
    )
    return ((high.to(tl.int64) << 20) | (low.to(tl.int64) >> 12)).to(tl.float64) * 2.220446049250313e-16


@triton.jit
def pick_kernel(
    logits,
    rules,
    values,
    raw_largest,
    raw_total,
    largest,
    likeliest,
    floors,
    totals,
    histories,
    token_ids,
    states,
    logprobs,
    log_totals,
    vocab_size,
    values_stride,
    num_parts,
    has_histories: tl.constexpr,
    part_size: tl.constexpr,
    parts: tl.constexpr,
):
    """The token of one row: the likeliest, or the one whose part, and whose place in it, the noise falls on.

    Grid: (B,). Reads the numbers of the parts and one part of the row. Sums in float64.
    """
    row = tl.program_id(0).to(tl.int64)
    at_part = tl.arange(0, parts)
    there = at_part < num_parts
    part_at = row * num_parts + at_part
    maxima = tl.load(largest + part_at, mask=there, other=float("-inf"))
    top = tl.max(maxima, 0)
    first = tl.min(tl.where((maxima == top) & there, at_part, num_parts - 1), 0)
    chosen = tl.load(likeliest + row * num_parts + first)

    raw_maxima = tl.load(raw_largest + part_at, mask=there, other=float("-inf"))
    raw_top = tl.max(raw_maxima, 0)
    is_spoiled = (tl.max((raw_maxima != raw_maxima).to(tl.int32), 0) > 0) | (raw_top == float("-inf"))
    raw_top = tl.where(is_spoiled, 0.0, raw_top)
    shares = tl.exp(raw_maxima - raw_top)
    total = tl.sum(tl.load(raw_total + part_at, mask=there, other=0.0) * shares, 0)
    log_total = raw_top + tl.log(tl.where(is_spoiled, 1.0, total))
    is_open = tl.abs(top) < float("inf")
    state = tl.where(is_spoiled, 1, tl.where(is_open, 0, 2))

    if (rule_number(rules, row, TEMPERATURE) > 0.0) & (state == 0):
        seed, position = tl.load(rules + row * RULE_FIELDS + SEED), tl.load(rules + row * RULE_FIELDS + POSITION)
        reached = tl.cumsum(tl.load(totals + part_at, mask=there, other=0.0), 0)
        target = _uniform(seed, position) * tl.max(reached, 0)
        part = tl.minimum(tl.sum((reached <= target).to(tl.int32), 0), num_parts - 1)
        target -= tl.max(tl.where(at_part < part, reached, 0.0), 0)
        token = part * part_size + tl.arange(0, part_size)
        value = tl.load(values + row * values_stride + token, mask=token < vocab_size, other=float("-inf"))
        weight = tl.where(value >= tl.load(floors + row), tl.exp(value), 0.0).to(tl.float64)
        beyond = tl.cumsum(weight, 0) > target
        chosen = tl.min(tl.where(beyond & (weight > 0.0), token, vocab_size), 0)
        # Sums in another order may end a rounding short of the target: then it is the last that weighs anything.
        chosen = tl.where(chosen < vocab_size, chosen, tl.max(tl.where(weight > 0.0, token, 0), 0))
    chosen = tl.where(state == 0, chosen, 0)
    tl.store(token_ids + row, chosen.to(tl.int64))
    tl.store(states + row, state)
    tl.store(log_totals + row, log_total)
    logprob = tl.load(logits + row * vocab_size + chosen).to(tl.float32) - log_total
    tl.store(logprobs + row, tl.maximum(logprob, _LOGPROB_FLOOR))
    if has_histories:
        history = tl.load(rules + row * RULE_FIELDS + HISTORY)
        if (history >= 0) & (state == 0):
            seen = histories + history * vocab_size + chosen
            tl.store(seen, tl.load(seen) + 1)


def draw_tokens(
    logits: Tensor,
    shaped: ShapedLogits,
    rules: SamplingTensors,
    *,
    histories: Tensor | None = None,
    all_greedy: bool = False,
) -> DrawnTokens:
    """The next token of each row. logits: [B, V], the raw ones that `shaped` was made of; `shaped` is used up.

    histories: where each row with one counts its token; a history must not be named by two rows. all_greedy: the host
    knows that no row has a temperature. Raises ValueError for wrong shapes.
    """
    num_rows, vocab_size = logits.shape
    parts = triton.cdiv(vocab_size, PART)
    expect("shaped.values", shaped.values, (num_rows, vocab_size + CANDIDATES), (torch.float32,))
    expect("shaped.largest", shaped.largest, (num_rows, parts), (torch.float32,))
    device = logits.device
    token_ids = torch.empty(num_rows, dtype=torch.int64, device=device)
    states = torch.empty(num_rows, dtype=torch.int32, device=device)
    logprobs, log_totals, floors = torch.empty(3, num_rows, dtype=torch.float32, device=device)
    totals = torch.empty(num_rows, parts, dtype=torch.float64, device=device)
    if not num_rows:
        return DrawnTokens(token_ids, states, logprobs, log_totals)
    padded = triton.next_power_of_2(parts)
    if not all_greedy:
        _weigh(shaped, rules, floors, totals, vocab_size)
    pick_kernel[(num_rows,)](
        logits,
        rules.rules,
        shaped.values,
        shaped.raw_largest,
        shaped.raw_total,
        shaped.largest,
        shaped.likeliest,
        floors,
        totals,
        rules.rules if histories is None else histories,
        token_ids,
        states,
        logprobs,
        log_totals,
        vocab_size,
        shaped.values.shape[1],
        parts,
        has_histories=histories is not None,
        part_size=PART,
        parts=padded,
        num_warps=8,
    )
    return DrawnTokens(token_ids, states, logprobs, log_totals)


def _weigh(shaped: ShapedLogits, rules: SamplingTensors, floors: Tensor, totals: Tensor, vocab_size: int) -> None:
    """Fills in the floors of all rows that are drawn, and the weights of what their parts keep."""
    num_rows, num_parts = totals.shape
    values, stride, parts = shaped.values, shaped.values.shape[1], triton.next_power_of_2(num_parts)
    counts = torch.empty(num_rows, num_parts, _DEPTHS, dtype=torch.int32, device=values.device)
    masses = torch.empty(num_rows, num_parts, _DEPTHS, dtype=torch.float64, device=values.device)
    lists = torch.empty(num_rows, 2, dtype=torch.int32, device=values.device)
    grid = (num_rows, num_parts)
    weigh_kernel[grid](
        rules.rules, values, shaped.largest, counts, masses, totals, vocab_size, stride,
        part_size=PART, parts=parts, depths=_DEPTHS, num_warps=8,
    )  # fmt: skip
    gather_kernel[grid](
        rules.rules, values, counts, masses, totals, lists, vocab_size, stride, CANDIDATES,
        part_size=PART, parts=parts, depths=_DEPTHS, num_warps=8,
    )  # fmt: skip
    cut_kernel[(num_rows,)](
        rules.rules, values, totals, lists, floors, vocab_size, stride, num_parts,
        parts=parts, tile=_CUT_TILE, num_warps=16,
    )  # fmt: skip
    weigh_kept_kernel[grid](rules.rules, values, floors, totals, vocab_size, stride, part_size=PART, num_warps=8)
