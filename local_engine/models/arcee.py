"""AFM of Arcee (2025): Llama whose feed-forward blocks have no gate, and squares of what is positive inside."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig
from local_engine.loading.fields import FieldReader
from local_engine.models import llama

__all__ = ["gguf_config", "hf_config"]

_BLOCK = BlockConfig(activation="relu_squared", gated=False)


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of ArceeForCausalLM. Raises ModelLoadError."""
    if (activation := fields.text("hidden_act", "relu2")) != "relu2":
        fields.refuse(f"hidden_act {activation!r}, expected 'relu2'")
    config = llama.hf_config(fields.without("hidden_act"))
    eps = fields.number("rms_norm_eps", 1e-5)
    return replace(config, architecture="arcee", rms_norm_eps=eps, block=_BLOCK)


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is arcee."""
    return replace(llama.gguf_config(fields, tensor_shapes, architecture="arcee"), block=_BLOCK)
