"""Idefics3 and SmolVLM (Laurençon et al. 2024; Marafioti et al. 2025): Llama's decoder with Siglip's tower.

Attention is causal over images too. A large image comes as several, one for each of its tiles.
"""

from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName, Weights
from local_engine.models import llama, siglip
from local_engine.models.mmproj import SiglipProjector

__all__ = ["PREFIXES", "PROJECTOR", "build_tower", "hf_config"]

PREFIXES = {
    "model.text_model.": "model.",
    "model.vision_model.": "vision.",
    "model.connector.modality_projection.": "projector.",
}
"""What tensors' names begin with in files, and here."""

PROJECTOR = SiglipProjector(
    type="idefics3",
    square=2,
    tensors={"projector.proj.weight": GgufName("mm.model.fc.weight")},
    image_tokens=("<image>",),
)

# What an absent key means to transformers.
_VISION = {
    "hidden_size": 1152,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "image_size": 224,
    "patch_size": 32,
}


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Idefics3ForConditionalGeneration and SmolVLMForConditionalGeneration. Raises ModelLoadError."""
    text, vision = fields.table("text_config"), fields.table("vision_config")
    if text is None or vision is None:
        fields.refuse("text_config or vision_config is missing")
    if (kind := text.text("model_type", "llama")) != "llama":
        fields.refuse(f"text_config.model_type is {kind!r}, expected 'llama'")
    square = fields.integer("scale_factor", 2)
    if square < 1:
        fields.refuse(f"scale_factor is {square}, expected 1 or more")
    tower = siglip.hf_tower(
        vision,
        defaults=_VISION,
        square=lambda side: square,
        token_id=fields.integer("image_token_id", 128_257),
        bidirectional=False,
    )
    tied = fields.boolean("tie_word_embeddings", False)
    return replace(llama.hf_config(text), tie_embeddings=tied, vision=tower)


def build_tower(config: ModelConfig, weights: Weights) -> siglip.ImageTower:
    """Reads the tower and its projection. Raises ModelLoadError."""
    assert config.vision is not None
    return siglip.ImageTower(config.vision, weights, siglip.shuffled_projection(config, config.vision, weights))
