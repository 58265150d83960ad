"""The structures that the compiled kernels take, field by field as their headers have them."""

from ctypes import POINTER, Structure, c_float, c_int32, c_void_p

__all__ = [
    "AdaptedLayerStruct",
    "DecoderStruct",
    "ExpertsStruct",
    "LatentStruct",
    "LayerStatesStruct",
    "LayerStruct",
    "LowRankStruct",
    "MatrixStruct",
    "RecurrentStruct",
    "RopeStruct",
    "RoutingStruct",
    "StepStruct",
]


class MatrixStruct(Structure):
    """A packed weight, as format.h has it."""

    _fields_ = (
        ("data", c_void_p),
        ("bias", c_void_p),
        ("format", c_int32),
        ("rows", c_int32),
        ("columns", c_int32),
        ("unused", c_int32),
    )


class RecurrentStruct(Structure):
    """As recurrent.h has it."""

    _fields_ = (
        ("tap_weights", c_void_p),
        ("tap_bias", c_void_p),
        ("rates", c_void_p),
        ("rate_bias", c_void_p),
        ("norm", c_void_p),
        ("direct", c_void_p),
        ("kind", c_int32),
        ("taps", c_int32),
        ("channels", c_int32),
        ("key_heads", c_int32),
        ("value_heads", c_int32),
        ("key_dim", c_int32),
        ("value_dim", c_int32),
        ("tiled", c_int32),
        ("eps", c_float),
        ("unused", c_int32),
    )


class LayerStatesStruct(Structure):
    _fields_ = (("tails", c_void_p), ("matrices", c_void_p))


class RoutingStruct(Structure):
    """As routing.h has it."""

    _fields_ = (
        ("count", c_int32),
        ("per_token", c_int32),
        ("width", c_int32),
        ("sigmoid", c_int32),
        ("normalised", c_int32),
        ("groups", c_int32),
        ("used_groups", c_int32),
        ("scale", c_float),
        ("slope", c_float),
        ("limit", c_float),
    )


class ExpertsStruct(Structure):
    """As decoder.h has it; so the rest."""

    _fields_ = (
        ("router", MatrixStruct),
        ("correction", c_void_p),
        ("gate", POINTER(MatrixStruct)),
        ("up", POINTER(MatrixStruct)),
        ("down", POINTER(MatrixStruct)),
        ("shared_gate", c_void_p),
    )


class LatentStruct(Structure):
    _fields_ = (
        ("norm", c_void_p),
        ("query_norm", c_void_p),
        ("queries", MatrixStruct),
        ("keys", MatrixStruct),
        ("values", MatrixStruct),
        ("eps", c_float),
    )


class LayerStruct(Structure):
    _fields_ = (
        ("attention_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("sinks", c_void_p),
        ("post_attention_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("post_mlp_norm", c_void_p),
        ("inputs", MatrixStruct * 4),
        ("output", MatrixStruct),
        ("gate", MatrixStruct),
        ("up", MatrixStruct),
        ("down", MatrixStruct),
        ("window", c_int32),
        ("rope", c_int32),
        ("recurrent", POINTER(RecurrentStruct)),
        ("latent", POINTER(LatentStruct)),
        ("experts", POINTER(ExpertsStruct)),
    )


class RopeStruct(Structure):
    _fields_ = (("frequencies", c_void_p), ("length", c_float), ("rotary", c_int32), ("axes", c_void_p))


class DecoderStruct(Structure):
    _fields_ = (
        ("num_layers", c_int32),
        ("hidden", c_int32),
        ("intermediate", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("vocabulary", c_int32),
        ("activation", c_int32),
        ("eps", c_float),
        ("embedding_scale", c_float),
        ("score_scale", c_float),
        ("score_cap", c_float),
        ("logits_cap", c_float),
        ("num_ropes", c_int32),
        ("ropes", POINTER(RopeStruct)),
        ("layers", POINTER(LayerStruct)),
        ("embedding", MatrixStruct),
        ("head", MatrixStruct),
        ("norm", c_void_p),
        ("centred", c_int32),
        ("parallel", c_int32),
        ("qk_norm", c_int32),
        ("attention_gate", c_int32),
        ("shared", c_int32),
        ("routing", RoutingStruct),
        ("stacked_layers", c_int32),
        ("value_dim", c_int32),
    )


class LowRankStruct(Structure):
    _fields_ = (("down", c_void_p), ("up", c_void_p), ("rank", c_int32))


class AdaptedLayerStruct(Structure):
    _fields_ = (
        ("qkv", LowRankStruct),
        ("output", LowRankStruct),
        ("gate_up", LowRankStruct),
        ("down", LowRankStruct),
        ("queries", LowRankStruct),
    )


class StepStruct(Structure):
    _fields_ = (
        ("num_rows", c_int32),
        ("tokens", c_void_p),
        ("positions", c_void_p),
        ("sequences", c_void_p),
        ("blocks", c_void_p),
        ("first_block", c_void_p),
        ("adapters", c_void_p),
        ("wanted", c_void_p),
        ("seen", c_void_p),
        ("states", POINTER(LayerStatesStruct)),
        ("sources", c_void_p),
        ("targets", c_void_p),
        ("axis_positions", c_void_p),
        ("stacked", c_void_p),
    )
