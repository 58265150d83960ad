"""A decoder as the kernels want it, built from named tensors.

Knows which shapes they compute; `unsupported` says in one line why a model is not one.
"""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from local_engine.attention_config import RopeConfig
from local_engine.config import ModelConfig
from local_engine.kernels.cpu.latent import latent_parts, unsupported_latent
from local_engine.kernels.cpu.library import Library
from local_engine.kernels.cpu.packing import MatrixPacker, Rounding
from local_engine.kernels.cpu.recurrent import recurrent_parts, unsupported_recurrence
from local_engine.kernels.cpu.structures import (
    DecoderStruct,
    ExpertsStruct,
    LayerStruct,
    MatrixStruct,
    RopeStruct,
    RoutingStruct,
)
from local_engine.layer_config import ExpertsConfig
from local_engine.layers.rope import frequency_axes
from local_engine.loading.weights import Weights
from local_engine.models.self_attention import Rotary
from local_engine.models.sparse_mlp import ExpertNames

__all__ = ["PackedDecoder", "build_decoder", "routing_of", "unsupported"]

_ACTIVATIONS = {"silu": 0, "gelu_tanh": 1}
_QK_NORMS = {None: 0, "heads": 0, "turned_heads": 1, "row": 2}
_MAX_HEAD_DIM = 1024
_LANES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedDecoder:
    """Weights in memory, and the structure over them. Never written, so any number of executors may share it.

    sites: of each layer the names by which adapters know its products: QKV or what a state is made of, output, gate and
        up, down; of latent attention queries as well.
    kept: the memory that the structure points to.
    """

    config: ModelConfig
    library: Library
    struct: DecoderStruct
    sites: Sequence[Sequence[str]]
    kept: Sequence[object]


def unsupported(config: ModelConfig) -> str | None:
    """Why the kernels cannot run a decoder of this shape, or None. Weight types are another question."""
    if config.block.norm == "layer_bias":
        return "norms with biases"
    if not config.block.gated:
        return "feed-forward blocks without a gate"
    if config.latent is not None and (reason := unsupported_latent(config.latent)) is not None:
        return reason
    if config.mlp_layers or config.attention_beside:
        return "layers of one half each, or with attention beside a recurrence"
    if config.recurrent is not None and (reason := unsupported_recurrence(config.recurrent)) is not None:
        return reason
    if config.attention_gate and (config.fused_qkv or config.qk_norm == "row"):
        return "gates of attention with norms of rows, or in one matrix with keys and values"
    if config.uneven or config.value_norm:
        return "layers that differ in their heads, or read each other's keys and values"
    if config.block.per_layer_size or config.block.layer_scales:
        return "inputs and scales of each layer's own"
    if any(kind.section is not None for kind in config.attention_kinds):
        return "windows that follow one another"
    if config.grows or any(kind.unweighted_qk_norm for kind in config.attention_kinds):
        return "queries that grow with their position, or have norms without weights"
    if _stacked_layers(config) >= config.num_layers:
        return "rows of images for its last layer"
    if config.experts is not None and (config.experts.weighted_inputs or config.experts.latent_size):
        return "experts that read weighted rows or vectors of their own"
    if config.experts is not None and config.block.layer_norms.mlp_output is not None:
        return "norms behind experts"
    for name, value in (
        ("head_dim", config.head_dim),
        ("hidden_size", config.hidden_size),
        ("intermediate_size", config.intermediate_size if _has_dense_layers(config) else 0),
        ("experts' intermediate_size", config.experts.intermediate_size if config.experts else 0),
        ("shared experts' size", config.experts.shared_size if config.experts else 0),
    ):
        if value % _LANES:
            return f"{name} {value}, which is no multiple of {_LANES}"
    if config.head_dim > _MAX_HEAD_DIM:
        return f"head_dim {config.head_dim}"
    for kind in config.attention_kinds:
        if kind.rope is not None and (kind.rope.rotary_dim or config.head_dim) % _LANES:
            return f"rope over {kind.rope.rotary_dim} dimensions"
    return None


def _has_dense_layers(config: ModelConfig) -> bool:
    return config.experts is None or len(config.experts.dense_layers) > 0


def _stacked_layers(config: ModelConfig) -> int:
    return 0 if config.vision is None else config.vision.num_stacked


def build_decoder(
    config: ModelConfig,
    library: Library,
    weights: Weights,
    *,
    rounding: Rounding,
    expert_names: ExpertNames | None = None,
) -> PackedDecoder:
    """Reads all weights. `weights` gives float32 on the CPU. expert_names: of a sparse model. Raises ModelLoadError."""
    builder = _Builder(config, library, weights, rounding, expert_names)
    try:
        return builder.build()
    finally:
        builder.close()


class _Builder:
    def __init__(
        self,
        config: ModelConfig,
        library: Library,
        weights: Weights,
        rounding: Rounding,
        expert_names: ExpertNames | None,
    ) -> None:
        self._config = config
        self._expert_names = expert_names
        self._library = library
        self._weights = weights
        self._packer = MatrixPacker(library, weights, rounding=rounding)
        self._kept: list[object] = [self._packer]
        self._sites: list[Sequence[str]] = []

    def close(self) -> None:
        self._packer.close()

    def build(self) -> PackedDecoder:
        config = self._config
        embedding = self._packer.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size, finer=True)
        layers = (LayerStruct * config.num_layers)(*(self._layer(index) for index in range(config.num_layers)))
        for index in range(config.num_layers, config.num_layers + config.predicting_layers):
            for prefix in ("model.layers", "blk"):
                self._weights.skip_under(f"{prefix}.{index}.")
        if config.tie_embeddings:
            self._weights.skip("lm_head.weight")
            head = embedding
        else:
            head = self._packer.matrix("lm_head.weight", config.vocab_size, config.hidden_size, finer=True)
        ropes = self._ropes()
        struct = DecoderStruct(
            num_layers=config.num_layers,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size if _has_dense_layers(config) else 0,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            vocabulary=config.vocab_size,
            activation=_ACTIVATIONS[config.block.activation],
            eps=config.rms_norm_eps,
            embedding_scale=config.block.embedding_scale,
            score_scale=config.head_dim**-0.5 if config.attention_scale is None else config.attention_scale,
            score_cap=config.attention_soft_cap or 0.0,
            logits_cap=config.logits_soft_cap or 0.0,
            num_ropes=len(ropes),
            ropes=ropes,
            layers=layers,
            embedding=embedding,
            head=head,
            norm=self._norm("model.norm", config.hidden_size, scale=config.block.logits_scale),
            centred=config.block.norm == "layer",
            parallel=config.block.norms == "parallel",
            qk_norm=_QK_NORMS[config.qk_norm],
            attention_gate=config.attention_gate,
            shared=0 if config.experts is None else config.experts.shared_size,
            routing=RoutingStruct() if config.experts is None else routing_of(config.experts),
            stacked_layers=_stacked_layers(config),
            value_dim=config.head_dim if config.latent is None else config.latent.rank,
        )
        self._kept += [layers, ropes]
        return PackedDecoder(config=config, library=self._library, struct=struct, sites=self._sites, kept=self._kept)

    def _layer(self, index: int) -> LayerStruct:
        config = self._config
        hidden, layer = config.hidden_size, f"model.layers.{index}"

        def norm(name: str | None) -> int | None:
            return None if name is None else self._norm(f"{layer}.{name}", hidden)

        names = config.block.layer_norms
        struct = LayerStruct(
            attention_norm=norm(names.attention_input),
            post_attention_norm=norm(names.attention_output),
            mlp_norm=norm(names.mlp_input),
            post_mlp_norm=norm(names.mlp_output),
        )
        mixer_sites = self._recurrence(struct, index) if config.is_recurrent(index) else self._attention(struct, index)
        # A mixer's sites are two, or three, of which the last one is that of queries.
        self._sites.append((*mixer_sites[:2], *self._feed_forward(struct, index), *mixer_sites[2:]))
        return struct

    def _attention(self, struct: LayerStruct, index: int) -> tuple[str, ...]:
        """Fills in queries, keys, values and what reads the attended rows; their sites."""
        config, name = self._config, f"model.layers.{index}.self_attn"
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self._weights.skip(f"{name}.rotary_emb.inv_freq")
        kind = config.attention_kinds[config.kind_of(index)]
        struct.window = kind.window or 0
        struct.rope = -1 if kind.rope is None else self._rope_order().index(kind.rope)
        if config.latent is not None:
            latent = latent_parts(config, config.latent, index, self._weights, self._packer, self._address)
            self._kept.append(latent.struct)
            struct.latent = ctypes.pointer(latent.struct)
            output = (latent.output, latent.columns)
            return *self._mixer(struct, latent.inputs, output, input_bias=False, output_bias=False), latent.queries
        if config.qk_norm:
            row = config.qk_norm == "row"
            struct.query_norm = self._norm(f"{name}.q_norm", queries if row else config.head_dim)
            struct.key_norm = self._norm(f"{name}.k_norm", keys if row else config.head_dim)
        if config.attention_sinks:
            struct.sinks = self._address(self._weights.joined([f"{name}.sinks"], [config.num_heads]))
        # Where the rows of Q, K and V follow one another, one matrix stands for all three.
        parts = (
            {"qkv_proj": queries + 2 * keys}
            if config.fused_qkv
            else {"q_proj": queries * (1 + config.attention_gate), "k_proj": keys, "v_proj": keys}
        )
        inputs = {f"{name}.{part}": rows for part, rows in parts.items()}
        return self._mixer(
            struct,
            inputs,
            (f"{name}.o_proj", queries),
            input_bias=config.qkv_bias,
            output_bias=config.output_bias,
        )

    def _recurrence(self, struct: LayerStruct, index: int) -> tuple[str, str]:
        """The same of a layer that has a state."""
        parts = recurrent_parts(self._config, index, self._weights, self._address)
        self._kept.append(parts.struct)
        struct.recurrent = ctypes.pointer(parts.struct)
        output = (parts.output, parts.columns)
        return self._mixer(struct, parts.inputs, output, input_bias=parts.bias, output_bias=parts.bias)

    def _mixer(
        self,
        struct: LayerStruct,
        inputs: Mapping[str, int],
        output: tuple[str, int],
        *,
        input_bias: bool,
        output_bias: bool,
    ) -> tuple[str, str]:
        """inputs: names and rows of what reads the normed rows. output: name and columns of what is made of them."""
        hidden, (name, columns), sites = self._config.hidden_size, output, self._weights.lora_sites
        for place, (part, rows) in enumerate(inputs.items()):
            struct.inputs[place] = self._linear(part, rows, hidden, bias=input_bias)
        struct.output = self._linear(name, hidden, columns, bias=output_bias)
        return sites.register(inputs, hidden).name, sites.register({name: hidden}, columns).name

    def _feed_forward(self, struct: LayerStruct, index: int) -> tuple[str, str]:
        """Fills in the layer's experts and its block for all tokens, whichever it has; gives the block's sites."""
        shape = self._config.experts
        if shape is None or index in shape.dense_layers:
            return self._block(struct, f"model.layers.{index}.mlp", self._config.intermediate_size)
        assert self._expert_names is not None
        names = self._expert_names.of_layer(index)
        struct.experts = ctypes.pointer(self._experts(names, shape))
        return self._block(struct, names.shared, shape.shared_size) if shape.shared_size else ("", "")

    def _experts(self, names: ExpertNames, shape: ExpertsConfig) -> ExpertsStruct:
        hidden, width = self._config.hidden_size, shape.intermediate_size

        def stack(part: str, rows: int, columns: int) -> "ctypes.Array[MatrixStruct]":
            parts = [f"{names.experts}.{index}.{part}" for index in range(shape.count)]
            packed = self._packer.matrices([f"{name}.weight" for name in parts], rows, columns)
            for name, matrix in zip(parts, packed, strict=True):
                self._add_bias(matrix, name, shape.bias)
            matrices = (MatrixStruct * shape.count)(*packed)
            self._kept.append(matrices)
            return matrices

        router = self._packer.exact(f"{names.router}.weight", shape.count, hidden)
        self._add_bias(router, names.router, shape.bias)
        struct = ExpertsStruct(
            router=router,
            gate=stack(names.gate, width, hidden),
            up=stack(names.up, width, hidden),
            down=stack(names.down, hidden, width),
        )
        if shape.routing.corrected:
            struct.correction = self._address(self._weights.flat(names.correction, shape.count))
        if shape.shared_gate:
            struct.shared_gate = self._address(self._weights.row(f"{names.shared_gate}.weight", hidden))
        self._kept.append(struct)
        return struct

    def _block(self, struct: LayerStruct, name: str, width: int) -> tuple[str, str]:
        """The feed-forward block `name`; gives its sites."""
        config = self._config
        hidden, bias = config.hidden_size, config.mlp_bias
        if config.fused_gate_up:
            parts = {f"{name}.gate_up_proj": 2 * width}
            struct.gate, struct.up = self._halves(self._linear(f"{name}.gate_up_proj", 2 * width, hidden, bias=bias))
        else:
            parts = {f"{name}.gate_proj": width, f"{name}.up_proj": width}
            struct.gate, struct.up = (self._linear(part, width, hidden, bias=bias) for part in parts)
        struct.down = self._linear(f"{name}.down_proj", hidden, width, bias=bias)
        sites = self._weights.lora_sites
        return sites.register(parts, hidden).name, sites.register({f"{name}.down_proj": hidden}, width).name

    def _linear(self, name: str, rows: int, columns: int, *, bias: bool) -> MatrixStruct:
        matrix = self._packer.matrix(f"{name}.weight", rows, columns)
        self._add_bias(matrix, name, bias)
        return matrix

    def _add_bias(self, matrix: MatrixStruct, name: str, has_bias: bool) -> None:
        if has_bias:
            matrix.bias = self._address(self._weights.joined([f"{name}.bias"], [matrix.rows]))

    def _halves(self, both: MatrixStruct) -> tuple[MatrixStruct, MatrixStruct]:
        rows = both.rows // 2
        offset = self._library.matrix_bytes(both.format, rows, both.columns)
        bias = None if both.bias is None else both.bias + 4 * rows
        first = MatrixStruct(both.data, both.bias, both.format, rows, both.columns, 0)
        return first, MatrixStruct(both.data + offset, bias, both.format, rows, both.columns, 0)

    def _norm(self, name: str, size: int, *, scale: float = 1.0) -> int:
        """scale: of what comes out, which is the weights' to give."""
        weight = self._weights.joined([f"{name}.weight"], [size]) + self._config.block.norm_offset
        return self._address(weight * scale)

    def _rope_order(self) -> list[RopeConfig]:
        return list(dict.fromkeys(kind.rope for kind in self._config.attention_kinds if kind.rope is not None))

    def _ropes(self) -> "ctypes.Array[RopeStruct]":
        rotary = Rotary(self._config, self._weights, torch.device("cpu"))
        order = self._rope_order()
        structs = []
        for rope in order:
            frequencies = rotary.frequencies[rope]
            axes = frequency_axes(rope).numpy().astype(np.int32) if rope.mrope_sections else None
            self._kept.append(axes)
            structs.append(
                RopeStruct(
                    self._address(frequencies),
                    rope.attention_factor,
                    2 * len(frequencies),
                    None if axes is None else axes.ctypes.data,
                )
            )
        return (RopeStruct * len(structs))(*structs)

    def _address(self, tensor: Tensor) -> int:
        """Of a copy in float32 that is kept as long as the decoder."""
        values = np.array(tensor.numpy(), dtype=np.float32)
        self._kept.append(values)
        return values.ctypes.data


def routing_of(shape: ExpertsConfig) -> RoutingStruct:
    """The same for the kernels."""
    return RoutingStruct(
        count=shape.count,
        per_token=shape.per_token,
        width=shape.intermediate_size,
        sigmoid=shape.routing.scores == "sigmoid",
        normalised=shape.normalised,
        groups=shape.routing.groups,
        used_groups=shape.routing.used_groups,
        scale=shape.routing.scale,
        slope=shape.swiglu_alpha,
        limit=shape.swiglu_limit if shape.activation == "clamped_swiglu" else 0.0,
    )
