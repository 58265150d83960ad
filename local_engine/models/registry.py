"""The supported architectures, as rows: adding one is a file beside this one and a row here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from local_engine.config import ModelConfig
from local_engine.layers.ops import Ops
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfName
from local_engine.loading.weights import GgufName, Weights
from local_engine.models import (
    gemma,
    gemma2,
    gemma3,
    gemma3_vision,
    gpt_oss,
    idefics3,
    llama,
    mistral,
    mixtral,
    phi3,
    qwen2,
    qwen3,
    qwen3_moe,
    smollm3,
)
from local_engine.models.decoder import build_decoder
from local_engine.models.model import Model
from local_engine.models.siglip import ImageTower

__all__ = ["ARCHITECTURES", "Architecture", "by_gguf_name", "by_hf_name"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One decoder: the names that files know it by, how its configuration reads, and how it is built.

    Rows that share a gguf_name and gguf_experts, whether such a file has experts, read it with the same functions.
    hf_stacks: where safetensors stack the experts. hf_prefixes: what names of tensors begin with there, and with us.
    build_tower: of a model that reads images. In a GGUF such a model is its decoder alone.
    """

    gguf_name: str
    hf_names: tuple[str, ...]
    hf_config: Callable[[FieldReader], ModelConfig]
    gguf_config: Callable[[FieldReader, Mapping[str, tuple[int, ...]]], ModelConfig]
    gguf_names: Callable[[ModelConfig], dict[str, GgufName]]
    build: Callable[[ModelConfig, Weights, Ops], Model]
    hf_stacks: Callable[[ModelConfig], Mapping[str, HfName]] = lambda _: {}
    gguf_experts: bool = False
    hf_prefixes: Mapping[str, str] = field(default_factory=dict)
    build_tower: Callable[[ModelConfig, Weights], ImageTower] | None = None


ARCHITECTURES = (
    Architecture(
        gguf_name="llama",
        hf_names=("LlamaForCausalLM",),
        hf_config=llama.hf_config,
        gguf_config=llama.gguf_config,
        gguf_names=llama.gguf_names,
        build=build_decoder,
    ),
    Architecture(
        gguf_name="llama",
        hf_names=("MistralForCausalLM",),
        hf_config=mistral.hf_config,
        gguf_config=llama.gguf_config,
        gguf_names=llama.gguf_names,
        build=build_decoder,
    ),
    Architecture(
        gguf_name="qwen2",
        hf_names=("Qwen2ForCausalLM",),
        hf_config=qwen2.hf_config,
        gguf_config=qwen2.gguf_config,
        gguf_names=qwen2.gguf_names,
        build=build_decoder,
    ),
    Architecture(
        gguf_name="qwen3",
        hf_names=("Qwen3ForCausalLM",),
        hf_config=qwen3.hf_config,
        gguf_config=qwen3.gguf_config,
        gguf_names=qwen2.gguf_names,
        build=build_decoder,
    ),
    Architecture(
        gguf_name="gemma2",
        hf_names=("Gemma2ForCausalLM",),
        hf_config=gemma2.hf_config,
        gguf_config=gemma2.gguf_config,
        gguf_names=gemma.gguf_names,
        build=build_decoder,
    ),
    Architecture(
        gguf_name="gemma3",
        hf_names=("Gemma3ForCausalLM",),
        hf_config=gemma3.hf_config,
        gguf_config=gemma3.gguf_config,
        gguf_names=gemma.gguf_names,
        build=build_decoder,
    ),
    Architecture(
        gguf_name="gemma3",
        hf_names=("Gemma3ForConditionalGeneration",),
        hf_config=gemma3_vision.hf_config,
        gguf_config=gemma3.gguf_config,
        gguf_names=gemma.gguf_names,
        build=build_decoder,
        hf_prefixes=gemma3_vision.PREFIXES,
        build_tower=gemma3_vision.build_tower,
    ),
    Architecture(
        gguf_name="llama",
        hf_names=("Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"),
        hf_config=idefics3.hf_config,
        gguf_config=llama.gguf_config,
        gguf_names=llama.gguf_names,
        build=build_decoder,
        hf_prefixes=idefics3.PREFIXES,
        build_tower=idefics3.build_tower,
    ),
    Architecture(
        gguf_name="phi3",
        hf_names=("Phi3ForCausalLM",),
        hf_config=phi3.hf_config,
        gguf_config=phi3.gguf_config,
        gguf_names=phi3.gguf_names,
        build=build_decoder,
    ),
    Architecture(
        gguf_name="smollm3",
        hf_names=("SmolLM3ForCausalLM",),
        hf_config=smollm3.hf_config,
        gguf_config=smollm3.gguf_config,
        gguf_names=llama.gguf_names,
        build=build_decoder,
    ),
    Architecture(
        gguf_name="llama",
        hf_names=("MixtralForCausalLM",),
        hf_config=mixtral.hf_config,
        gguf_config=mixtral.gguf_config,
        gguf_names=mixtral.gguf_names,
        build=mixtral.build_mixtral,
        gguf_experts=True,
    ),
    Architecture(
        gguf_name="qwen3moe",
        hf_names=("Qwen3MoeForCausalLM",),
        hf_config=qwen3_moe.hf_config,
        gguf_config=qwen3_moe.gguf_config,
        gguf_names=qwen3_moe.gguf_names,
        build=qwen3_moe.build_qwen3_moe,
        gguf_experts=True,
    ),
    Architecture(
        gguf_name="gpt-oss",
        hf_names=("GptOssForCausalLM",),
        hf_config=gpt_oss.hf_config,
        gguf_config=gpt_oss.gguf_config,
        gguf_names=gpt_oss.gguf_names,
        build=gpt_oss.build_gpt_oss,
        hf_stacks=gpt_oss.hf_stacks,
        gguf_experts=True,
    ),
)


def by_gguf_name(name: str, *, experts: bool) -> Architecture | None:
    """The architecture that a GGUF calls `name`, or None. experts: the file says that it has some."""
    rows = [row for row in ARCHITECTURES if row.gguf_name == name]
    return next((row for row in rows if row.gguf_experts == experts), rows[0] if rows else None)


def by_hf_name(name: str) -> Architecture | None:
    """The architecture that config.json calls `name`, or None."""
    return next((row for row in ARCHITECTURES if name in row.hf_names), None)
