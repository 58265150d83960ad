"""Qwen3-VL, dense and with experts (Qwen Team 2025): Qwen3, whose positions have three axes, with a tower.

What the tower makes of an image in some of its layers is added behind the decoder's first ones.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfName
from local_engine.models import qwen3, qwen3_moe
from local_engine.models.qwen2_vl import text_fields, with_axes
from local_engine.models.qwen_tower import hf_tower
from local_engine.vision_config import QwenTowerConfig, VisionConfig

__all__ = ["PREFIXES", "gguf_config", "gguf_config_of_moe", "hf_config", "hf_config_of_moe", "hf_places", "hf_vision"]

PREFIXES = {"model.language_model.": "model.", "model.visual.": "vision."}
"""What tensors' names begin with in files, and here."""

_SECTIONS = (24, 20, 20)
# What an absent key means to transformers.
_VISION = {"hidden_size": 1152, "intermediate_size": 4304, "depth": 27, "patch_size": 16}

_EXPERTS = {"num_local_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408}


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Qwen3VLForConditionalGeneration. Raises ModelLoadError."""
    return _with_vision(fields, qwen3.hf_config(text_fields(fields, "text_config")))


def hf_config_of_moe(fields: FieldReader) -> ModelConfig:
    """config.json of Qwen3VLMoeForConditionalGeneration. Raises ModelLoadError."""
    text = text_fields(fields, "text_config").with_defaults(_EXPERTS)
    config = qwen3_moe.hf_config(text)
    assert config.experts is not None
    return _with_vision(fields, replace(config, experts=replace(config.experts, normalised=True)))


def _with_vision(fields: FieldReader, config: ModelConfig) -> ModelConfig:
    tied = fields.boolean("tie_word_embeddings", False)
    config = with_axes(config, _SECTIONS, interleaved=True)
    return replace(config, tie_embeddings=tied, vision=hf_vision(fields, stacked=(8, 16, 24)))


def hf_vision(fields: FieldReader, *, stacked: tuple[int, ...]) -> VisionConfig:
    """The tower in config.json. stacked: layers of which more than the last is used, where the file does not say."""
    vision = text_fields(fields, "vision_config").with_defaults(_VISION)
    if vision.given("deepstack_visual_indexes"):
        stacked = vision.integers("deepstack_visual_indexes")
    positions = vision.integer("num_position_embeddings", 2304)
    side = math.isqrt(max(positions, 0))
    if side < 1 or side * side != positions:
        fields.refuse(f"vision_config.num_position_embeddings is {positions}, expected a square")
    qwen = QwenTowerConfig("layer_bias", "gelu_tanh", position_side=side, stacked_layers=stacked)
    return hf_tower(fields, vision, qwen)


def hf_places(config: ModelConfig) -> dict[str, HfName]:
    """Experts in stacks, gate beside up: published files have inputs first, those of transformers' own making rows."""
    assert config.experts is not None
    width, hidden = config.experts.intermediate_size, config.hidden_size
    places = {}
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}.mlp.experts"
        both, down = f"{prefix}.gate_up_proj", f"{prefix}.down_proj"
        for index in range(config.experts.count):
            places[f"{prefix}.{index}.gate_proj.weight"] = HfName(both, index, stop=width, inputs=hidden)
            places[f"{prefix}.{index}.up_proj.weight"] = HfName(both, index, width, inputs=hidden)
            places[f"{prefix}.{index}.down_proj.weight"] = HfName(down, index, inputs=width)
    return places


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is qwen3vl."""
    config = qwen3.gguf_config(fields, tensor_shapes, architecture="qwen3vl")
    return with_axes(config, _SECTIONS, interleaved=True)


def gguf_config_of_moe(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is qwen3vlmoe."""
    config = qwen3_moe.gguf_config(fields, tensor_shapes, architecture="qwen3vlmoe")
    return with_axes(config, _SECTIONS, interleaved=True)
