"""Self-attention with its projections, as the layers of most decoders have it, driven by the configuration alone.

Q, K and V run as one matrix. What the layers of one kind share in a step (which keys they see, the angles of its rows)
is made once a step, by `Rotary`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from local_engine.attention_config import QueryGrowth, RopeConfig
from local_engine.config import ModelConfig
from local_engine.layers.attention import AttentionPlan, AttentionPlans, LayerCache
from local_engine.layers.ops import Ops
from local_engine.layers.rope import frequency_axes, inverse_frequencies, rope_tables
from local_engine.loading.weights import Weights
from local_engine.models.norm import Norm, read_norm, unchanged, unweighted_norm
from local_engine.models.projection import projection

__all__ = ["LONG_FACTORS", "ROPE_FACTORS", "SHORT_FACTORS", "LayerStep", "Rotary", "SelfAttention"]

# What a GGUF may have as tensors: divisors of all frequencies, or longrope's of one range of windows.
ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS = "rope_factors", "rope_factors_short", "rope_factors_long"


@dataclass(frozen=True, slots=True)
class LayerStep:
    """What the layers of one kind share in one step.

    angles: cosines and sines of its rows; None, nothing turns. growth: [T, 1, 1], what queries are multiplied with.
    """

    plan: AttentionPlan
    angles: tuple[Tensor, Tensor] | None
    growth: Tensor | None = None


class Rotary:
    """The frequencies of each kind of layer. Reads those divisors from the weights that the file has as tensors."""

    def __init__(self, config: ModelConfig, weights: Weights, device: torch.device) -> None:
        self._kinds = config.attention_kinds
        self._frequencies: dict[RopeConfig, Tensor] = {}
        # A file's divisors are of the layers that see all, where others do not.
        stretched = {kind.rope for kind in self._kinds if kind.window is None} or {kind.rope for kind in self._kinds}
        for rope in {kind.rope for kind in self._kinds if kind.rope is not None}:
            frequencies = inverse_frequencies(rope, config.head_dim, max_context=config.max_context)
            for name in (ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS):
                if weights.has(name) and rope in stretched:
                    factors = weights.joined([name], [len(frequencies)]).to("cpu", torch.float32)
                    is_long = config.max_context > rope.original_max_context
                    if name == ROPE_FACTORS or (name == LONG_FACTORS) == is_long:
                        frequencies = frequencies / factors
            self._frequencies[rope] = frequencies.to(device)
        self._axes = {rope: frequency_axes(rope).to(device) for rope in self._frequencies if rope.mrope_sections}

    @property
    def frequencies(self) -> Mapping[RopeConfig, Tensor]:
        """Radians a position of each rope, [R/2] float32."""
        return self._frequencies

    def steps(self, positions: Tensor, dtype: torch.dtype, plans: AttentionPlans) -> list[LayerStep]:
        """One item for each of the configuration's attention kinds. positions: as in `Batch`."""
        angles = {
            rope: rope_tables(
                positions if positions.ndim == 1 else positions[:, self._axes[rope]],
                frequencies,
                dtype,
                attention_factor=rope.attention_factor,
            )
            for rope, frequencies in self._frequencies.items()
        }
        return [
            LayerStep(
                plans[kind.reach],
                None if kind.rope is None else angles[kind.rope],
                None if kind.query_growth is None else _growth(kind.query_growth, positions, dtype),
            )
            for kind in self._kinds
        ]


def _growth(growth: QueryGrowth, positions: Tensor, dtype: torch.dtype) -> Tensor:
    """What the queries of each row are multiplied with: [T, 1, 1]."""
    sections = torch.div(positions + growth.offset, growth.length, rounding_mode="floor").float()
    return (1 + growth.rate * sections.log1p()).to(dtype).view(-1, 1, 1)


class SelfAttention:
    """The attention of layer `index`: from normalised hidden states to what is added to the residual.

    bias of each projection, norms of the heads, scale, soft cap and sinks are as the configuration says. A layer that
    borrows has no keys and values.
    """

    def __init__(
        self,
        config: ModelConfig,
        index: int,
        weights: Weights,
        ops: Ops,
    ) -> None:
        self._ops = ops
        config, borrows = config.of_layer(index), config.borrows(index)
        kind, num_kv_heads = config.attention_kinds[config.kind_of(index)], 0 if borrows else config.num_kv_heads
        self._head_dim = config.head_dim
        self._scale, self._soft_cap = config.attention_scale, config.attention_soft_cap
        num_rotated = config.num_heads + num_kv_heads
        self._queries, self._keys = slice(config.num_heads), slice(config.num_heads, num_rotated)
        self._rotated = slice(num_rotated)
        self._values = self._keys if kind.keys_as_values else slice(num_rotated, None)
        name = f"model.layers.{index}.self_attn"
        query_rows, kv_rows = config.num_heads * config.head_dim, num_kv_heads * config.head_dim
        self._gated_heads = config.num_heads if config.attention_gate else 0
        if config.fused_qkv:
            parts = {f"{name}.qkv_proj": query_rows + 2 * kv_rows}
        else:
            parts = {f"{name}.q_proj": query_rows + self._gated_heads * config.head_dim}
            if not borrows:
                parts[f"{name}.k_proj"] = kv_rows
            if not borrows and not kind.keys_as_values:
                parts[f"{name}.v_proj"] = kv_rows
        for part in ("k_proj", "v_proj", "k_norm") if borrows else ():  # files may carry them
            weights.skip_under(f"{name}.{part}.")
        self._sinks = weights.joined([f"{name}.sinks"], [config.num_heads]) if config.attention_sinks else None
        weights.skip(f"{name}.rotary_emb.inv_freq")
        self._qkv = projection(weights, ops, parts, config.hidden_size, bias=config.qkv_bias)
        self._output = projection(
            weights, ops, {f"{name}.o_proj": config.hidden_size}, query_rows, bias=config.output_bias
        )
        self._norms: list[tuple[slice, Norm]] = []
        if config.qk_norm is not None:
            parts_normed = [(self._queries, "q_norm", config.num_heads), (self._keys, "k_norm", num_kv_heads)]
            for heads, norm, count in parts_normed[:1] if borrows else parts_normed:
                width = config.head_dim * (count if config.qk_norm == "row" else 1)
                self._norms.append((heads, read_norm(config, f"{name}.{norm}", width, weights, ops)))
        self._qk_norm = config.qk_norm
        self._value_norm = unweighted_norm(config, config.head_dim) if config.value_norm else unchanged
        self._unweighted_norm = unweighted_norm(config, config.head_dim) if kind.unweighted_qk_norm else unchanged

    def __call__(self, x: Tensor, cache: LayerCache, step: LayerStep) -> Tensor:
        """x [T, hidden_size] -> [T, hidden_size]; writes the keys and values of the rows to the cache."""
        qkv = self._qkv(x).view(x.shape[0], -1, self._head_dim)
        gates = None
        if self._gated_heads:
            gated = qkv[:, : 2 * self._gated_heads]
            qkv = torch.cat((gated[:, 0::2], qkv[:, gated.shape[1] :]), 1)
            gates = gated[:, 1::2]
        values = self._value_norm(qkv[:, self._values])
        rotated = qkv[:, self._rotated]
        if self._qk_norm != "turned_heads":
            self._normalise(rotated)
        if step.angles is not None:
            rotated = self._ops.apply_rope(rotated, *step.angles)
        if self._qk_norm == "turned_heads":
            self._normalise(rotated)
        rotated = self._unweighted_norm(rotated)
        queries = rotated[:, self._queries]
        attended = self._ops.paged_attention(
            queries if step.growth is None else queries * step.growth,
            rotated[:, self._keys],
            values,
            cache,
            step.plan,
            scale=self._scale,
            soft_cap=self._soft_cap,
            sinks=self._sinks,
        )
        return self._output(attended if gates is None else attended * torch.sigmoid(gates.flatten(1)))

    def _normalise(self, x: Tensor) -> None:
        """Queries and keys [T, H + K, D], in place."""
        for heads, norm in self._norms:
            vectors = x[:, heads]
            x[:, heads] = norm(vectors.flatten(1)).view_as(vectors) if self._qk_norm == "row" else norm(vectors)
