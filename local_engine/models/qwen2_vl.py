"""Qwen2-VL and Qwen2.5-VL (Wang et al. 2024; Bai et al. 2025): Qwen2, whose positions have three axes, with a tower."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.models import qwen2
from local_engine.models.qwen_tower import hf_tower
from local_engine.vision_config import QwenTowerConfig

__all__ = ["PREFIXES", "gguf_config", "hf_config_of_2", "hf_config_of_2_5", "text_fields", "with_axes"]

PREFIXES = {
    "model.language_model.": "model.",
    **{
        f"{root}visual.{theirs}": f"vision.{ours}"
        for root in ("model.", "")
        for theirs, ours in (
            ("merger.ln_q.", "merger.norm."),
            ("merger.mlp.0.", "merger.linear_fc1."),
            ("merger.mlp.2.", "merger.linear_fc2."),
            ("", ""),
        )
    },
}
"""What tensors' names begin with in files of this and of older versions of transformers, and here."""

_SECTIONS = (16, 24, 24)
# What an absent key means to transformers.
_VISION_OF_2 = {"embed_dim": 1280, "mlp_ratio": 4, "depth": 32, "patch_size": 14}
_VISION_OF_2_5 = {"hidden_size": 3584, "intermediate_size": 3420, "depth": 32, "patch_size": 14}


def hf_config_of_2(fields: FieldReader) -> ModelConfig:
    """config.json of Qwen2VLForConditionalGeneration. Raises ModelLoadError."""
    vision = text_fields(fields, "vision_config").with_defaults(_VISION_OF_2)
    width = vision.integer("embed_dim")  # hidden_size is the decoder's
    sizes = {"hidden_size": width, "intermediate_size": width * vision.integer("mlp_ratio")}
    tower = hf_tower(
        fields, vision.without("hidden_size").with_defaults(sizes), QwenTowerConfig("layer_bias", "quick_gelu")
    )
    return replace(_hf_text(fields), vision=tower)


def hf_config_of_2_5(fields: FieldReader) -> ModelConfig:
    """config.json of Qwen2_5_VLForConditionalGeneration. Raises ModelLoadError."""
    vision = text_fields(fields, "vision_config").with_defaults(_VISION_OF_2_5)
    whole = vision.integers("fullatt_block_indexes") if vision.given("fullatt_block_indexes") else (7, 15, 23, 31)
    qwen = QwenTowerConfig("rms", "gated_silu", window=vision.integer("window_size", 112), whole_layers=whole)
    return replace(_hf_text(fields), vision=hf_tower(fields, vision, qwen))


def _hf_text(fields: FieldReader) -> ModelConfig:
    # Published files have the text's keys beside the others.
    text = fields.table("text_config") or fields
    tied = fields.boolean("tie_word_embeddings", False) or text.boolean("tie_word_embeddings", False)
    return replace(with_axes(qwen2.hf_config(text), _SECTIONS), tie_embeddings=tied)


def text_fields(fields: FieldReader, name: str) -> FieldReader:
    """The object under a name that must be there."""
    inner = fields.table(name)
    if inner is None:
        fields.refuse(f"{name} is missing")
    return inner


def with_axes(config: ModelConfig, sections: tuple[int, ...], *, interleaved: bool = False) -> ModelConfig:
    """With the rope's sections, which are these where the file has none, in the order of the architecture."""
    kinds = tuple(
        kind
        if kind.rope is None
        else replace(
            kind,
            rope=replace(kind.rope, mrope_sections=kind.rope.mrope_sections or sections, mrope_interleaved=interleaved),
        )
        for kind in config.attention_kinds
    )
    return replace(config, attention_kinds=kinds)


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is qwen2vl: of both generations."""
    return with_axes(qwen2.gguf_config(fields, tensor_shapes, architecture="qwen2vl"), _SECTIONS)
