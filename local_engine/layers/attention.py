"""Causal attention over a paged KV cache, and the plan of one step's rows that the layers of one window share.

A slot of the cache is block * block_size + offset. Slot 0, of the padding block, stays zero: padding reads it and
nothing else does, so what a failed sequence left in freed blocks (NaN, say) can never reach another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.attention_config import Window
from local_engine.layers.kv_cache import LayerCache

__all__ = ["AttentionGroup", "AttentionPlan", "AttentionPlans", "LayerCache", "PagedAttention", "paged_attention"]


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Rows start to stop of a step: B sequences with Q query tokens each, over S slots each.

    slots: [B * S] int64, slots of padding are 0; or a slice where they follow one another, which then are not copied:
    the usual case of a lone sequence. mask: [B, 1, Q, S] added to the scores (0 or -inf), or None when
    every query sees every slot.
    """

    start: int
    stop: int
    num_sequences: int
    slots: Tensor | slice
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """write_slots: [T] int64, where each row's key and value go. groups: cover rows 0 to T in order."""

    write_slots: Tensor
    groups: tuple[AttentionGroup, ...]


# One step's plan for each distinct window of a model's layers; None is the plan without a window.
AttentionPlans = Mapping[Window, AttentionPlan]


class PagedAttention(Protocol):
    """Writes the new keys and values to the cache, then attends from each row to its sequence's past and itself."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cache: LayerCache,
        plan: AttentionPlan,
        *,
        scale: float | None = None,
        soft_cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """q [T, H, D], k and v [T, K, D] -> [T, H * D]. k and v have no heads where another layer has written them.

        scale: of the scores; None is 1 / sqrt(D). soft_cap: c makes of a scaled score c * tanh(score / c).
        sinks: [H], a logit a head that takes part in the softmax and has no value.
        """


def paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cache: LayerCache,
    plan: AttentionPlan,
    *,
    scale: float | None = None,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """The reference: gathers each group's slots and attends once a group, without cap and sinks by torch's own SDPA."""
    num_heads, head_dim, num_kv_heads = q.shape[1], q.shape[2], cache.keys.shape[1]
    if k.shape[1]:
        cache.write(plan.write_slots, k, v)
    outputs = []
    for group in plan.groups:
        # The query heads that share a kv head become rows of one matrix: no copy of keys or values per query head.
        rows = q[group.start : group.stop].view(
            group.num_sequences, -1, num_kv_heads, num_heads // num_kv_heads, head_dim
        )
        batch, num_queries, _, share, _ = rows.shape
        queries = rows.permute(0, 2, 3, 1, 4).reshape(batch, num_kv_heads, share * num_queries, head_dim)
        keys, values = (
            side.view(batch, -1, num_kv_heads, head_dim).transpose(1, 2) for side in cache.read(group.slots, q.dtype)
        )
        mask = group.mask
        if mask is not None and num_queries > 1:
            mask = mask.repeat(1, 1, share, 1)
        if soft_cap is None and sinks is None:
            attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
        else:
            scores = queries @ keys.transpose(-1, -2) * (head_dim**-0.5 if scale is None else scale)
            attended = _softmax(_capped(scores, soft_cap), mask, sinks) @ values
        attended = attended.view(batch, num_kv_heads, share, num_queries, head_dim).permute(0, 3, 1, 2, 4)
        outputs.append(attended.reshape(batch * num_queries, num_heads * head_dim))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _capped(scores: Tensor, soft_cap: float | None) -> Tensor:
    return scores if soft_cap is None else torch.tanh(scores / soft_cap) * soft_cap


def _softmax(scores: Tensor, mask: Tensor | None, sinks: Tensor | None) -> Tensor:
    """scores [B, K, R, S], with R the rows of H / K heads one after the other -> weights, computed in float32."""
    if mask is not None:
        scores = scores + mask
    if sinks is None:
        return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)
    batch, num_kv_heads, num_rows, _ = scores.shape
    share = sinks.shape[0] // num_kv_heads
    column = sinks.view(1, num_kv_heads, share, 1).expand(batch, -1, -1, num_rows // share)
    column = column.reshape(batch, num_kv_heads, num_rows, 1).to(scores.dtype)
    return torch.cat((scores, column), -1).softmax(-1, dtype=torch.float32)[..., :-1].to(scores.dtype)
