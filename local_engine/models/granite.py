"""Granite 3 and 4, dense (IBM 2024): Llama with a factor on embeddings, scores, what layers add, and logits.

The factor m on what layers add is no one's business but this file's: with h / m in place of the residual h, a layer
adds its outputs as they are, and norms give the same when their epsilon is divided by m squared.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig
from local_engine.loading.fields import FieldReader
from local_engine.models import llama

__all__ = ["gguf_config", "hf_config"]

_LIMIT = 2.0**20


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of GraniteForCausalLM. Raises ModelLoadError."""
    names = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
    return scaled(fields, llama.hf_config(fields), "granite", names)


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is granite."""
    config = llama.gguf_config(fields, tensor_shapes, architecture="granite")
    return gguf_scaled(fields, config)


def gguf_scaled(fields: FieldReader, config: ModelConfig) -> ModelConfig:
    """With the factors that a GGUF has under the architecture's name."""
    names = ("embedding_scale", "attention.scale", "residual_scale", "logit_scale")
    return scaled(fields, config, config.architecture, tuple(f"{config.architecture}.{name}" for name in names))


def scaled(fields: FieldReader, config: ModelConfig, architecture: str, names: tuple[str, ...]) -> ModelConfig:
    """With the factors of embeddings, scores and additions, and the divisor of logits, that the file has so named."""
    factors = []
    for name in names:
        factors.append(fields.number(name, 1.0))
        if not 1 / _LIMIT <= factors[-1] <= _LIMIT:
            fields.refuse(f"{name} is {factors[-1]:g}, expected a number from 2^-20 to 2^20")
    embedding, attention, added, logits = factors
    return replace(
        config,
        architecture=architecture,
        rms_norm_eps=config.rms_norm_eps / added**2,
        attention_scale=attention,
        block=BlockConfig(embedding_scale=embedding / added, logits_scale=1 / logits),
    )
