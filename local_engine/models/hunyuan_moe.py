"""Hunyuan with experts, version 1 (Tencent 2025): attention as the dense one's, a block for all beside experts."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.layer_config import ExpertsConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName
from local_engine.models import hunyuan, llama, qwen2
from local_engine.models.sparse_mlp import ExpertNames, gguf_expert_names, gguf_experts

__all__ = ["NAMES", "gguf_config", "gguf_names", "hf_config"]

NAMES = ExpertNames("mlp.gate.wg", "mlp.experts", shared="mlp.shared_mlp")


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of HunYuanMoEV1ForCausalLM. Raises ModelLoadError."""
    if fields.boolean("use_cla", False):
        fields.refuse("use_cla is true: layers that read another's keys and values are not supported here")
    config = hunyuan.hf_config(fields)
    width = config.intermediate_size
    experts = ExpertsConfig(
        count=_of_all_layers(fields, "num_experts", 1),
        per_token=_of_all_layers(fields, "moe_topk", 1),
        intermediate_size=_of_all_layers(fields, "moe_intermediate_size", width),
        shared_size=_of_all_layers(fields, "num_shared_expert", 1) * width,
    )
    return replace(config, architecture="hunyuan_v1_moe", experts=experts)


def _of_all_layers(fields: FieldReader, name: str, default: int) -> int:
    """One number, or a list with the same one for each layer."""
    numbers = set(fields.integers(name)) or {default}
    if len(numbers) > 1:
        fields.refuse(f"{name} has {len(numbers)} different numbers, expected the same one for all layers")
    return numbers.pop()


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is hunyuan-moe."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture="hunyuan-moe")
    experts = gguf_experts(fields, "hunyuan-moe", config.intermediate_size)
    return replace(config, qk_norm="turned_heads", experts=experts)


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return qwen2.gguf_names(config) | gguf_expert_names(config, NAMES)
