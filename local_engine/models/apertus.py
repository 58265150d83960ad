"""Apertus (Swiss AI 2025): Llama with norms of query and key heads, and a feed-forward block of xIELUs without a gate.

xIELU (Huang and Schlag 2024) has a few numbers a layer, which safetensors have as tensors, and GGUFs in their metadata.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.attention_config import AttentionKind, RopeConfig
from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig, Xielu
from local_engine.layers.ops import Ops
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfRows
from local_engine.loading.weights import Weights
from local_engine.models import llama
from local_engine.models.decoder import Mlp
from local_engine.models.gated_mlp import PlainMlp

__all__ = ["build_mlp", "gguf_config", "hf_config", "hf_places"]

_BLOCK = BlockConfig(activation="xielu", gated=False)
# What absent keys mean to transformers.
_MAX_CONTEXT = 65536
_ROPE = RopeConfig(theta=12e6, scaling="llama3", factor=8.0, original_max_context=8192)
_NORMS = {"input_layernorm": "attention_layernorm", "post_attention_layernorm": "feedforward_layernorm"}


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of ApertusForCausalLM. Raises ModelLoadError."""
    if (activation := fields.text("hidden_act", "xielu")) != "xielu":
        fields.refuse(f"hidden_act {activation!r}, expected 'xielu'")
    defaults = {"max_position_embeddings": _MAX_CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": _ROPE.theta}
    config = llama.hf_config(fields.without("hidden_act").with_defaults(defaults))
    if fields.table("rope_parameters") is None and fields.table("rope_scaling") is None:
        config = replace(config, attention_kinds=(AttentionKind(rope=_ROPE),))
    return replace(config, architecture="apertus", block=_BLOCK, mlp_bias=False, qk_norm="heads")


def hf_places(config: ModelConfig) -> dict[str, HfRows]:
    """Its own names of norms."""
    return {
        f"model.layers.{index}.{ours}.weight": HfRows(f"model.layers.{index}.{theirs}.weight")
        for index in range(config.num_layers)
        for ours, theirs in _NORMS.items()
    }


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is apertus."""
    config = llama.gguf_config(fields, tensor_shapes, architecture="apertus")
    numbers = [fields.numbers(f"xielu.{name}") for name in ("alpha_p", "alpha_n", "beta", "eps")]
    if any(len(each) != config.num_layers for each in numbers):
        fields.refuse(f"xielu has {len(numbers[0])} items, expected one for each of {config.num_layers} layers")
    block = replace(_BLOCK, xielus=tuple(Xielu(*each) for each in zip(*numbers, strict=True)))
    return replace(config, block=block, qk_norm="heads")


def build_mlp(config: ModelConfig, index: int, weights: Weights, ops: Ops) -> Mlp:
    """The feed-forward block of layer `index`, with its own xIELU."""
    name = f"model.layers.{index}.mlp"
    if config.block.xielus:
        numbers = config.block.xielus[index]
    else:
        numbers = Xielu(*(weights.scalar(f"{name}.act_fn.{part}") for part in Xielu._fields))
    activation = partial(_xielu, numbers=numbers)
    return PlainMlp(config, name, weights, ops, width=config.intermediate_size, activation=activation)


def _xielu(x: Tensor, numbers: Xielu) -> Tensor:
    above, below = (F.softplus(torch.tensor(number)).item() for number in (numbers.alpha_p, numbers.alpha_n))
    linear = numbers.beta * x
    negative = (x.clamp(max=numbers.eps).expm1() - x) * (numbers.beta + below)
    return torch.where(x > 0, above * x * x, negative) + linear
