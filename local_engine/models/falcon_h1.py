"""Falcon-H1 (TII 2025): in each layer attention and Mamba-2 side by side, and factors on what most matrices yield.

GGUFs have the factors in the weights, and so have we: they are multiplied in while the files of transformers are read.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import MAX_LAYERS, ModelConfig
from local_engine.layer_config import BlockConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfRows
from local_engine.loading.recurrent_layers import hf_without_step_limits
from local_engine.loading.weights import GgufName
from local_engine.models import llama
from local_engine.models.mamba2_in_gguf import gguf_mamba2, gguf_mamba2_names
from local_engine.recurrent_config import Mamba2Config

__all__ = ["gguf_config", "gguf_names", "hf_config", "hf_places"]

_LIMIT = 2.0**20
_BLOCK = ("gate_proj", "up_proj", "down_proj")


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of FalconH1ForCausalLM. Raises ModelLoadError."""
    hf_without_step_limits(fields)
    config = llama.hf_config(fields.with_defaults({"rms_norm_eps": 1e-5, "max_position_embeddings": 8192}))
    heads = fields.integer("mamba_n_heads", 128)
    given = fields.optional_integer("mamba_d_ssm") if fields.given("mamba_d_ssm") else 1024
    width = fields.integer("mamba_expand", 2) * config.hidden_size if given is None else given
    normed = fields.boolean("mamba_rms_norm", False)
    if normed and fields.boolean("mamba_norm_before_gate", True):
        fields.refuse("mamba_norm_before_gate is true: norms before the gate are not supported")
    bias = fields.boolean("projectors_bias", False)
    if fields.boolean("mamba_proj_bias", False) != bias:
        fields.refuse(f"mamba_proj_bias and projectors_bias differ, which is not supported: the second one is {bias}")
    mamba = Mamba2Config(
        layers=frozenset(range(min(config.num_layers, MAX_LAYERS))),
        taps=fields.integer("mamba_d_conv", 4),
        heads=heads,
        head_dim=width // max(heads, 1),
        groups=fields.integer("mamba_n_groups", 1),
        state_size=fields.integer("mamba_d_state", 256),
        norm_eps=config.rms_norm_eps if normed else None,
        bias=bias,
        conv_bias=fields.boolean("mamba_conv_bias", True),
    )
    return replace(
        config,
        architecture="falcon-h1",
        block=BlockConfig(
            embedding_scale=fields.number("embedding_multiplier", 1.0),
            logits_scale=fields.number("lm_head_multiplier", 1.0),
        ),
        recurrent=mamba,
        attention_beside=True,
        row_factors=_factors(fields, config, mamba),
    )


def _factors(
    fields: FieldReader, config: ModelConfig, mamba: Mamba2Config
) -> tuple[tuple[str, tuple[tuple[int, float], ...]], ...]:
    """What the rows of weights and biases are multiplied with, by the names of a layer's parts.

    A factor on what a matrix reads is one on its weights, but not on its bias.
    """
    read, key, attended = _numbers(fields, "attention_in_multiplier", "key_multiplier", "attention_out_multiplier")
    mixed, yielded = _numbers(fields, "ssm_in_multiplier", "ssm_out_multiplier")
    gate, down = _list(fields, "mlp_multipliers", 2)
    directions = mamba.groups * mamba.state_size
    parts = list(
        zip(
            (mamba.width, mamba.width, directions, directions, mamba.heads),
            _list(fields, "ssm_multipliers", 5),
            strict=True,
        )
    )
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden = config.hidden_size
    found = {
        "self_attn.q_proj.weight": [(queries, read)],
        "self_attn.k_proj.weight": [(keys, read * key)],
        "self_attn.k_proj.bias": [(keys, key)],
        "self_attn.v_proj.weight": [(keys, read)],
        "mamba.in_proj.weight": [(count, factor * mixed) for count, factor in parts],
        "mamba.in_proj.bias": parts,
    }
    for kind in ("weight", "bias"):
        found[f"self_attn.o_proj.{kind}"] = [(hidden, attended)]
        found[f"mamba.out_proj.{kind}"] = [(hidden, yielded)]
        found[f"mlp.gate_proj.{kind}"] = [(config.intermediate_size, gate)]
        found[f"mlp.down_proj.{kind}"] = [(hidden, down)]
    return tuple((name, tuple(factors)) for name, factors in found.items())


def _numbers(fields: FieldReader, *names: str) -> list[float]:
    return [_checked(fields, name, fields.number(name, 1.0)) for name in names]


def _list(fields: FieldReader, name: str, count: int) -> list[float]:
    factors = fields.numbers(name) or (1.0,) * count
    if len(factors) != count:
        fields.refuse(f"{name} has {len(factors)} items, expected {count}")
    return [_checked(fields, name, factor) for factor in factors]


def _checked(fields: FieldReader, name: str, factor: float) -> float:
    if not 1 / _LIMIT <= factor <= _LIMIT:
        fields.refuse(f"{name} is {factor:g}, expected a number from 2^-20 to 2^20")
    return factor


def hf_places(config: ModelConfig) -> dict[str, HfRows]:
    """Its own names, and the factors of its rows."""
    places = {"model.norm.weight": HfRows("model.final_layernorm.weight")}
    theirs = {f"mlp.{part}.{kind}": f"feed_forward.{part}.{kind}" for part in _BLOCK for kind in ("weight", "bias")}
    theirs["post_attention_layernorm.weight"] = "pre_ff_layernorm.weight"
    factors = dict(config.row_factors)
    for index in range(config.num_layers):
        for name in theirs.keys() | factors.keys():
            at = HfRows(f"model.layers.{index}.{theirs.get(name, name)}", factors=factors.get(name, ()))
            places[f"model.layers.{index}.{name}"] = at
    return places


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is falcon-h1."""
    config = llama.gguf_config(fields, tensor_shapes, architecture="falcon-h1")
    layers = frozenset(range(min(config.num_layers, MAX_LAYERS)))
    mamba = gguf_mamba2(fields, "falcon-h1", layers, tensor_shapes, norm_eps=config.rms_norm_eps)
    return replace(config, recurrent=mamba, attention_beside=True)


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF, of which one has no ending."""
    norms = {
        f"model.layers.{index}.post_attention_layernorm.weight": GgufName(f"blk.{index}.ffn_norm")
        for index in range(config.num_layers)
    }
    return llama.gguf_names(config, interleaved=False) | gguf_mamba2_names(config) | norms
