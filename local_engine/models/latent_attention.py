"""Multi-head latent attention (MLA; DeepSeek-AI 2024): the cache holds one compressed vector a token, for all heads.

What makes keys of that vector is applied to the queries instead, and what makes values of it to what they find. So
all heads share one kv head of the cache, whose values are the beginning of its keys.
"""

from dataclasses import replace

from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layer_config import LatentConfig
from local_engine.layers.attention import LayerCache
from local_engine.layers.linear import Linear
from local_engine.layers.ops import Ops
from local_engine.loading.weights import Weights
from local_engine.models.norm import read_norm
from local_engine.models.projection import projection
from local_engine.models.self_attention import LayerStep

__all__ = ["NORM_EPS", "LatentAttention", "split_heads"]

NORM_EPS = 1e-6
"""Of the norms of compressed vectors, whatever the others have."""


class LatentAttention:
    """The attention of layer `index`: from normalised hidden states to what is added to the residual."""

    def __init__(self, config: ModelConfig, shape: LatentConfig, index: int, weights: Weights, ops: Ops) -> None:
        self._ops, self._shape, self._num_heads = ops, shape, config.num_heads
        self._scale = config.attention_scale
        norms = replace(config, rms_norm_eps=NORM_EPS)
        name, hidden = f"model.layers.{index}.self_attn", config.hidden_size
        query_rows = config.num_heads * (shape.plain_dim + shape.turning_dim)
        if shape.query_rank:
            parts = {f"{name}.q_a_proj": shape.query_rank}
            self._query_input = projection(weights, ops, parts, hidden)
            self._query_norm = read_norm(norms, f"{name}.q_a_layernorm", shape.query_rank, weights, ops)
            self._query = projection(weights, ops, {f"{name}.q_b_proj": query_rows}, shape.query_rank)
        else:
            self._query = projection(weights, ops, {f"{name}.q_proj": query_rows}, hidden)
        parts = {f"{name}.kv_a_proj_with_mqa": shape.rank + shape.turning_dim}
        self._compress = projection(weights, ops, parts, hidden)
        self._norm = read_norm(norms, f"{name}.kv_a_layernorm", shape.rank, weights, ops)
        self._keys, self._values = self._per_head(name, weights)
        self._output = projection(weights, ops, {f"{name}.o_proj": hidden}, config.num_heads * shape.value_dim)

    def __call__(self, x: Tensor, cache: LayerCache, step: LayerStep) -> Tensor:
        """x [T, hidden_size] -> [T, hidden_size]; writes the compressed vectors of the rows to the cache."""
        shape = self._shape
        made_from = self._query_norm(self._query_input(x)) if shape.query_rank else x
        queries = self._query(made_from).view(x.shape[0], self._num_heads, -1)
        plain, turning = queries[..., : shape.plain_dim], queries[..., shape.plain_dim :]
        compressed = self._compress(x)
        latent = self._norm(compressed[:, : shape.rank])
        turning, turned_key = self._turned(turning, step), self._turned(compressed[:, None, shape.rank :], step)
        q = x.new_empty(x.shape[0], self._num_heads, shape.rank + shape.turning_dim)
        for head, linear in enumerate(self._keys):
            q[:, head, : shape.rank] = linear(plain[:, head])
        q[..., shape.rank :] = turning
        k, v = x.new_empty(x.shape[0], 1, q.shape[2]), x.new_zeros(x.shape[0], 1, q.shape[2])
        k[:, 0, : shape.rank] = v[:, 0, : shape.rank] = latent
        k[:, :, shape.rank :] = turned_key
        found = self._ops.paged_attention(q, k, v, cache, step.plan, scale=self._scale).view(q.shape)
        values = x.new_empty(x.shape[0], self._num_heads, shape.value_dim)
        for head, linear in enumerate(self._values):
            values[:, head] = linear(found[:, head, : shape.rank])
        return self._output(values.flatten(1))

    def _turned(self, x: Tensor, step: LayerStep) -> Tensor:
        """x [T, heads, turning_dim], whose dimensions lie pair by pair in files of either format."""
        pairs = x.reshape(*x.shape[:-1], -1, 2).transpose(-1, -2).flatten(-2)
        return pairs if step.angles is None else self._ops.apply_rope(pairs, *step.angles)

    def _per_head(self, name: str, weights: Weights) -> tuple[list[Linear], list[Linear]]:
        """Of each head what it does to queries, [rank, plain_dim], and what makes its values, [value_dim, rank].

        A linear layer each, so that on a CPU a row's result does not depend on the rows beside it.
        """
        shape, heads = self._shape, self._num_heads
        if weights.has(f"{name}.k_b_proj.weight"):
            keys = weights.tensor(f"{name}.k_b_proj.weight", (heads, shape.rank, shape.plain_dim))
            values = weights.tensor(f"{name}.v_b_proj.weight", (heads, shape.value_dim, shape.rank))
        else:
            rows = shape.plain_dim + shape.value_dim
            keys, values = split_heads(weights.stacked([f"{name}.kv_b_proj.weight"], [heads * rows], shape.rank), shape)
        return [self._ops.linear(each, None) for each in keys], [self._ops.linear(each, None) for each in values]


def split_heads(both: Tensor, shape: LatentConfig) -> tuple[Tensor, Tensor]:
    """kv_b_proj [heads * (plain_dim + value_dim), rank] as [heads, rank, plain_dim] and [heads, value_dim, rank]."""
    heads = both.view(-1, shape.plain_dim + shape.value_dim, shape.rank)
    return heads[:, : shape.plain_dim].transpose(1, 2).contiguous(), heads[:, shape.plain_dim :]
