"""dots.llm1 (rednote 2025): Qwen3's attention, experts chosen by sigmoids, and blocks beside them for all tokens."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName
from local_engine.models import glm4_moe, llama, qwen2
from local_engine.models.sparse_mlp import SIGMOID, gguf_expert_names, gguf_experts, hf_grouped_experts

__all__ = ["NAMES", "gguf_config", "gguf_names", "hf_config"]

NAMES = glm4_moe.NAMES
# What absent keys mean to transformers.
_EXPERTS = {
    "first_k_dense_replace": 0,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": False,
}


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Dots1ForCausalLM. Raises ModelLoadError."""
    windows = fields.with_defaults({"use_sliding_window": True, "max_window_layers": 62})
    return replace(
        qwen2.hf_windows(windows, llama.hf_config(fields)),
        architecture="dots1",
        mlp_bias=False,
        qk_norm="heads",
        experts=hf_grouped_experts(fields.with_defaults(_EXPERTS)),
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is dots1."""
    config = qwen2.gguf_windows(fields, llama.gguf_shape(fields, tensor_shapes, architecture="dots1"))
    experts = gguf_experts(fields, "dots1", config.intermediate_size, gating=SIGMOID)
    return replace(config, qk_norm="heads", experts=replace(experts, routing=replace(experts.routing, corrected=True)))


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return qwen2.gguf_names(config) | gguf_expert_names(config, NAMES)
