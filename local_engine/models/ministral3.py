"""Ministral 3, and Mistral Small as llama.cpp writes it now (Mistral AI 2025): Llama, the text models.

Behind the trained window Ministral's queries grow with their position, which the fused kernels do not compute: it is
served as the window where run.yaml asks for no larger one.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind, QueryGrowth
from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import yarn_temperature
from local_engine.models import llama, mistral

__all__ = ["PREFIXES", "TOWERS", "gguf_config", "hf_config"]

PREFIXES = {
    "language_model.lm_head.": "lm_head.",
    "language_model.model.": "model.",
    "model.language_model.": "model.",
}
"""What tensors' names begin with in files of the model with its tower, of older transformers and of this, and here."""
TOWERS = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Ministral3ForCausalLM, or of Mistral3ForConditionalGeneration without its tower.

    Raises ModelLoadError.
    """
    text = fields.table("text_config")
    if text is None:
        return _hf_text(fields)
    kind = text.text("model_type", "mistral")
    if kind not in ("mistral", "ministral3"):
        fields.refuse(f"text_config.model_type is {kind!r}, supported are mistral and ministral3")
    tied = fields.boolean("tie_word_embeddings", False)
    config = mistral.hf_config(text) if kind == "mistral" else _hf_text(text)
    return replace(config, tie_embeddings=text.boolean("tie_word_embeddings", tied))


def _hf_text(fields: FieldReader) -> ModelConfig:
    config = llama.hf_config(fields)
    scaling = fields.table("rope_parameters")
    if scaling is None:
        fields.refuse("rope_parameters is missing")
    window = fields.optional_integer("sliding_window")
    (kind,) = config.attention_kinds
    config = replace(
        config,
        architecture="ministral3",
        head_dim=fields.integer("head_dim", 128),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-5),
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        attention_kinds=(AttentionKind(window, kind.rope),),
    )
    return _growing(config, scaling.number("llama_4_scaling_beta", 0.0))


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is mistral3."""
    correction = "mistral3.rope.scaling.yarn_log_multiplier"
    config = llama.gguf_config(fields.without(correction), tensor_shapes, architecture="mistral3")
    all_dim = fields.number(correction, 0.0)
    (kind,) = config.attention_kinds
    if all_dim and kind.rope is not None and kind.rope.scaling == "yarn":
        factor = kind.rope.factor
        length = yarn_temperature(factor) / yarn_temperature(factor, all_dim)
        config = replace(config, attention_kinds=(replace(kind, rope=replace(kind.rope, attention_factor=length)),))
    return _growing(config, fields.number("mistral3.attention.temperature_scale", 0.0))


def _growing(config: ModelConfig, rate: float) -> ModelConfig:
    """rate: at which queries grow behind the trained window; 0 is none."""
    (kind,) = config.attention_kinds
    if not rate or kind.rope is None:
        return config
    trained = kind.rope.original_max_context
    kind = replace(kind, query_growth=QueryGrowth(trained, rate))
    return replace(config, default_context=trained, attention_kinds=(kind,))
