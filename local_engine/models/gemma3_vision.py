"""Gemma 3 with images (Gemma Team 2025): the text decoder of `gemma3`, Siglip's tower, and how files name both.

The tokens of one image see each other; everything else is causal.
"""

import math
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName, Weights
from local_engine.models import gemma3, siglip
from local_engine.models.mmproj import SiglipProjector

__all__ = ["PREFIXES", "PROJECTOR", "build_tower", "hf_config"]

PREFIXES = {
    "language_model.lm_head.": "lm_head.",
    "language_model.model.": "model.",
    "model.language_model.": "model.",
    "vision_tower.vision_model.": "vision.",
    "vision_tower.": "vision.",
    "model.vision_tower.vision_model.": "vision.",
    "model.vision_tower.": "vision.",
    "multi_modal_projector.": "projector.",
    "model.multi_modal_projector.": "projector.",
}
"""What tensors' names begin with in files of this and of older versions of transformers, and here."""

PROJECTOR = SiglipProjector(
    type="gemma3",
    square=4,
    tensors={
        "projector.mm_soft_emb_norm.weight": GgufName("mm.soft_emb_norm.weight", added=1.0),
        "projector.mm_input_projection_weight": GgufName("mm.input_projection.weight"),
    },
    # Many files end their vocabulary before the former, and no chat has the latter.
    image_tokens=("<image_soft_token>", "<pad>"),
    around=("<start_of_image>", "<end_of_image>"),
    bidirectional=True,
)

# What an absent key means to transformers, whose published files leave out much.
_TEXT = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
}
_VISION = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
}


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Gemma3ForConditionalGeneration. Raises ModelLoadError."""
    text, vision = fields.table("text_config"), fields.table("vision_config")
    if text is None or vision is None:
        fields.refuse("text_config or vision_config is missing")
    tower = siglip.hf_tower(
        vision,
        defaults=_VISION,
        square=lambda side: _square(fields, side),
        token_id=fields.integer("image_token_index", 262_144),
        bidirectional=True,
    )
    config = gemma3.hf_config(text.with_defaults(_TEXT))
    return replace(
        config,
        tie_embeddings=fields.boolean("tie_word_embeddings", True),
        vision=replace(
            tower,
            start_id=fields.integer("boi_token_index", 255_999),
            end_id=fields.integer("eoi_token_index", 256_000),
        ),
    )


def _square(fields: FieldReader, patches: int) -> int:
    tokens = fields.integer("mm_tokens_per_image", 256)
    side = math.isqrt(max(tokens, 0))
    if side < 1 or side * side != tokens or patches % side:
        fields.refuse(f"mm_tokens_per_image is {tokens}, which {patches} x {patches} patches cannot become")
    return patches // side


def build_tower(config: ModelConfig, weights: Weights) -> siglip.ImageTower:
    """Reads the tower and its projection. Raises ModelLoadError."""
    assert config.vision is not None
    return siglip.ImageTower(config.vision, weights, siglip.pooled_projection(config, config.vision, weights))
