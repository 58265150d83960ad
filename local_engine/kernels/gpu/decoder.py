"""A decoder over fused operations, built from named tensors.

Knows which models it runs and in which order the operations follow one another; which implementation computes them is
`dispatch`'s business, and which rows a step has the executor's. `models` has the same in plain torch: the reference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.kernels.gpu.matrices import Matrices
from local_engine.kernels.gpu.vocabulary import Vocabulary
from local_engine.kernels.operations import Activation, HeadNorms, Kernels
from local_engine.layer_config import PLAIN_ROUTING
from local_engine.layers.kv_cache import LayerCache
from local_engine.layers.linear import Linear
from local_engine.layers.rms_norm import rms_norm
from local_engine.layers.rope import rope_tables
from local_engine.models import gpt_oss, mixtral, qwen3_moe
from local_engine.models.self_attention import Rotary
from local_engine.models.sparse_mlp import ExpertNames

__all__ = ["FusedDecoder", "FusedLayer", "StepTensors", "unsupported"]

# The architectures whose experts it runs, and how they name them.
_SPARSE: Mapping[str, ExpertNames] = {
    "mixtral": mixtral.NAMES,
    "qwen3_moe": qwen3_moe.NAMES,
    "gpt_oss": gpt_oss.NAMES,
}
_MAX_HEAD_DIM = 256
_MAX_HIDDEN_SIZE = 16_384


@dataclass(frozen=True, slots=True)
class StepTensors:
    """The rows of one step on the device: first those that decode, one a sequence, then those of each other sequence.

    token_ids, positions: [T] int64. slots: [T] int64, where a row's key and value go; negative for a row of padding.
    block_tables: [B, blocks] int32. lengths, prompt_lengths: int32, keys of each sequence that decodes, and of each
    other, with those of its rows; 0 for padding. Two tensors: one that begins in another would not be aligned.
    query_starts: [P + 1] int32, where the rows of each sequence that does not decode begin, counted from the first of
    these rows, and their number. max_queries: the most of one sequence. splits: see `paged_decode`.
    adapter_slots: [T] int32, the slot of each row's adapter, -1 for none; None where no row has one.
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    block_tables: Tensor
    lengths: Tensor
    prompt_lengths: Tensor
    num_decodes: int
    query_starts: Tensor
    max_queries: int = 0
    splits: int = 1
    adapter_slots: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DenseMlp:
    """A feed-forward block. Implements `Linear`."""

    gate_up: Linear
    down: Linear
    activation: Activation
    kernels: Kernels

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self.kernels.gated_activation(self.gate_up(x), self.activation))


@dataclass(frozen=True, slots=True)
class FusedLayer:
    """The weights of one layer. kind: of its attention, by `ModelConfig.attention_kinds`. sinks: [H], or None.

    post_attention_norm, post_mlp_norm: of what is added to the residual, where the family has them.
    """

    kind: int
    attention_norm: Tensor
    qkv: Linear
    head_norms: HeadNorms | None
    sinks: Tensor | None
    output: Linear
    post_attention_norm: Tensor | None
    mlp_norm: Tensor
    mlp: Linear
    post_mlp_norm: Tensor | None


def unsupported(config: ModelConfig) -> str | None:
    """Why the fused decoder cannot run a model of this shape, or None."""
    if not config.block.gated:
        return "feed-forward blocks without a gate"
    if config.latent is not None:
        return "latent attention"
    if config.mlp_layers or config.attention_beside:
        return "layers of one half each, or with attention beside a recurrence"
    if config.recurrent is not None:
        return "recurrent layers"
    if config.uneven or config.value_norm:
        return "layers that differ in their heads, or read each other's keys and values"
    if config.block.per_layer_size or config.block.layer_scales:
        return "inputs and scales of each layer's own"
    if any(kind.section is not None for kind in config.attention_kinds):
        return "windows that follow one another"
    if config.grows or any(kind.unweighted_qk_norm for kind in config.attention_kinds):
        return "queries that grow with their position, or have norms without weights"
    if config.experts is not None and config.architecture not in _SPARSE:
        return f"the experts of {config.architecture}"
    if config.experts is not None and (config.experts.routing != PLAIN_ROUTING or config.experts.shared_size):
        return "experts that are routed in another way, or shared"
    if config.block.norms not in ("before", "around") or config.block.norm != "rms":
        return f"{config.block.norm} norms {config.block.norms} the layers' halves"
    if config.qk_norm not in (None, "heads"):
        return f"norms of queries and keys as {config.qk_norm}"
    if config.vision is not None:
        return "images"
    if config.head_dim > _MAX_HEAD_DIM:
        return f"head_dim {config.head_dim}"
    if config.hidden_size > _MAX_HIDDEN_SIZE:
        return f"hidden_size {config.hidden_size}"
    return None


class FusedDecoder:
    """Weights are shared and never written, so any number of executors may hold one."""

    def __init__(self, config: ModelConfig, matrices: Matrices) -> None:
        """Reads all weights. Raises ModelLoadError."""
        weights = matrices.weights
        self.config = config
        self.kernels = matrices.kernels
        hidden = config.hidden_size
        self.layers = [_layer(config, index, matrices) for index in range(config.num_layers)]
        offset, scale = config.block.norm_offset, config.block.logits_scale
        # Logits are scaled where it costs nothing: the kernels add the offset.
        self.norm = (weights.joined(["model.norm.weight"], [hidden]) + offset) * scale - offset
        self.dtype = self.norm.dtype
        self.vocabulary = Vocabulary(config, matrices, self.dtype)
        self._rotary = Rotary(config, weights, self.norm.device)

    def forward(self, step: StepTensors, caches: Sequence[LayerCache], *, block_size: int) -> tuple[Tensor, Tensor]:
        """The hidden states [T, hidden_size] before the last norm and after it.

        Writes keys and values. Launches only: nothing waits for the device, so a CUDA graph may record it.
        """
        hidden = self.vocabulary.embed(step.token_ids)
        angles = {
            rope: rope_tables(step.positions, frequencies, torch.float32, attention_factor=rope.attention_factor)
            for rope, frequencies in self._rotary.frequencies.items()
        }
        residual = torch.zeros_like(hidden)
        normed = self._add_norm(hidden, residual, self.layers[0].attention_norm, None)
        for index, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            kind = self.config.attention_kinds[layer.kind]
            qkv = layer.qkv(normed).view(len(normed), -1, self.config.head_dim)
            queries = self.kernels.rope_kv_write(
                qkv,
                cache,
                step.slots,
                angles=None if kind.rope is None else angles[kind.rope],
                norms=layer.head_norms,
            )
            attended = self._attend(queries, cache, step, layer, block_size).view(len(normed), -1)
            normed = self._add_norm(layer.output(attended), residual, layer.mlp_norm, layer.post_attention_norm)
            last = index == len(self.layers) - 1
            next_norm = self.norm if last else self.layers[index + 1].attention_norm
            normed = self._add_norm(layer.mlp(normed), residual, next_norm, layer.post_mlp_norm)
        return residual, normed

    def normed(self, hidden: Tensor) -> Tensor:
        """Rows of hidden states after the last norm."""
        weight = self.norm.float() + self.config.block.norm_offset
        return rms_norm(hidden.float(), weight, self.config.rms_norm_eps).to(hidden.dtype)

    def logits(self, normed: Tensor, rows: Tensor | None = None) -> Tensor:
        """See `Vocabulary.logits`."""
        return self.vocabulary.logits(normed, rows)

    def _add_norm(self, x: Tensor, residual: Tensor, weight: Tensor, inner_weight: Tensor | None) -> Tensor:
        return self.kernels.add_rms_norm(
            x,
            residual,
            weight,
            self.config.rms_norm_eps,
            inner_weight=inner_weight,
            weight_offset=self.config.block.norm_offset,
        )

    def _attend(
        self, queries: Tensor, cache: LayerCache, step: StepTensors, layer: FusedLayer, block_size: int
    ) -> Tensor:
        config, split = self.config, step.num_decodes
        window = config.attention_kinds[layer.kind].window
        parts = []
        if split:
            parts.append(
                self.kernels.paged_decode(
                    queries[:split],
                    cache,
                    step.block_tables[:split],
                    step.lengths,
                    block_size=block_size,
                    splits=step.splits,
                    scale=config.attention_scale,
                    soft_cap=config.attention_soft_cap,
                    window=window,
                    sinks=layer.sinks,
                )
            )
        if split < len(queries):
            parts.append(
                self.kernels.paged_prefill(
                    queries[split:],
                    cache,
                    step.block_tables[split:],
                    step.query_starts,
                    step.prompt_lengths,
                    max_queries=step.max_queries,
                    block_size=block_size,
                    scale=config.attention_scale,
                    soft_cap=config.attention_soft_cap,
                    window=window,
                    sinks=layer.sinks,
                )
            )
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _layer(config: ModelConfig, index: int, matrices: Matrices) -> FusedLayer:
    weights = matrices.weights
    hidden, head_dim = config.hidden_size, config.head_dim
    queries, keys = config.num_heads * head_dim, config.num_kv_heads * head_dim
    layer = f"model.layers.{index}"
    attention = f"{layer}.self_attn"
    weights.skip(f"{attention}.rotary_emb.inv_freq")
    if config.fused_qkv:
        qkv_parts = {f"{attention}.qkv_proj": queries + 2 * keys}
    else:
        qkv_parts = {f"{attention}.q_proj": queries, f"{attention}.k_proj": keys, f"{attention}.v_proj": keys}

    def norm(name: str | None) -> Tensor:
        if name is None:
            raise ValueError("a layer without norms of what it reads, which `unsupported` refuses")
        return weights.joined([f"{layer}.{name}.weight"], [hidden])

    norms = config.block.layer_norms
    head_norms = None
    if config.qk_norm:
        # In float32, with what the family adds: the kernel knows no offset here.
        query_norm, key_norm = (
            weights.joined([f"{attention}.{name}.weight"], [head_dim]).float() + config.block.norm_offset
            for name in ("q_norm", "k_norm")
        )
        head_norms = HeadNorms(query_norm, key_norm, config.rms_norm_eps)
    return FusedLayer(
        kind=config.kind_of(index),
        attention_norm=norm(norms.attention_input),
        qkv=matrices.linear(qkv_parts, hidden, bias=config.qkv_bias),
        head_norms=head_norms,
        sinks=weights.joined([f"{attention}.sinks"], [config.num_heads]) if config.attention_sinks else None,
        output=matrices.linear({f"{attention}.o_proj": hidden}, queries, bias=config.output_bias),
        post_attention_norm=norm(norms.attention_output) if norms.attention_output else None,
        mlp_norm=norm(norms.mlp_input),
        mlp=_mlp(config, index, matrices),
        post_mlp_norm=norm(norms.mlp_output) if norms.mlp_output else None,
    )


def _mlp(config: ModelConfig, index: int, matrices: Matrices) -> Linear:
    if config.experts is not None and index not in config.experts.dense_layers:
        return matrices.experts(config.experts, index, config.hidden_size, _SPARSE[config.architecture])
    hidden, width, activation = config.hidden_size, config.intermediate_size, config.block.activation
    if activation == "relu_squared" or activation == "xielu":
        raise ValueError("an activation of blocks without a gate, which `unsupported` refuses")
    name = f"model.layers.{index}.mlp"
    if config.fused_gate_up:
        parts = {f"{name}.gate_up_proj": 2 * width}
    else:
        parts = {f"{name}.gate_proj": width, f"{name}.up_proj": width}
    return DenseMlp(
        gate_up=matrices.linear(parts, hidden, bias=config.mlp_bias),
        down=matrices.linear({f"{name}.down_proj": hidden}, width, bias=config.mlp_bias),
        activation=activation,
        kernels=matrices.kernels,
    )
