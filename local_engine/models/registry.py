"""The supported architectures, as rows: adding one is a file beside this one and a row here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from local_engine.config import ModelConfig
from local_engine.layers.ops import Ops
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfName, HfRows
from local_engine.loading.weights import GgufName, Weights
from local_engine.models import (
    arcee,
    cohere,
    deepseek,
    ernie4_5,
    exaone4,
    gemma2,
    gemma3,
    gemma3_vision,
    gemma4,
    glm4,
    glm4_moe,
    gpt_oss,
    granite,
    hunyuan,
    idefics3,
    lfm2,
    llama,
    ministral3,
    mistral,
    mixtral,
    olmo,
    phi3,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
    qwen3_next,
    seed_oss,
    smollm3,
    starcoder2,
)
from local_engine.models.decoder import build_decoder
from local_engine.models.mmproj import Projector
from local_engine.models.model import Model
from local_engine.models.siglip import ImageTower
from local_engine.models.sparse_mlp import build_sparse

__all__ = ["ARCHITECTURES", "Architecture", "by_gguf_name", "by_hf_name"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One decoder: the names that files know it by, how its configuration reads, and how it is built.

    Rows that share a gguf_name and gguf_experts, whether such a file has experts, read it with the same functions.
    hf_places: of tensors that safetensors have by other names, in another order or in stacks. hf_prefixes: what names
    of tensors begin with there, and with us. hf_left_out: what they begin with of towers that nothing here reads.
    build_tower: of a model that reads images. projector: of the GGUF that such a tower has for itself.
    """

    gguf_name: str
    hf_names: tuple[str, ...]
    hf_config: Callable[[FieldReader], ModelConfig]
    gguf_config: Callable[[FieldReader, Mapping[str, tuple[int, ...]]], ModelConfig]
    gguf_names: Callable[[ModelConfig], dict[str, GgufName]] = llama.gguf_names
    build: Callable[[ModelConfig, Weights, Ops], Model] = build_decoder
    hf_places: Callable[[ModelConfig], Mapping[str, HfName | HfRows]] = llama.hf_places
    gguf_experts: bool = False
    hf_prefixes: Mapping[str, str] = field(default_factory=dict)
    hf_left_out: tuple[str, ...] = ()
    build_tower: Callable[[ModelConfig, Weights], ImageTower] | None = None
    projector: Projector | None = None


ARCHITECTURES = (
    Architecture(
        gguf_name="llama",
        hf_names=("LlamaForCausalLM",),
        hf_config=llama.hf_config,
        gguf_config=llama.gguf_config,
    ),
    Architecture(
        gguf_name="llama",
        hf_names=("MistralForCausalLM",),
        hf_config=mistral.hf_config,
        gguf_config=llama.gguf_config,
    ),
    Architecture(
        gguf_name="mistral3",
        hf_names=("Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"),
        hf_config=ministral3.hf_config,
        gguf_config=ministral3.gguf_config,
        hf_prefixes=ministral3.PREFIXES,
        hf_left_out=ministral3.TOWERS,
    ),
    Architecture(
        gguf_name="qwen2",
        hf_names=("Qwen2ForCausalLM",),
        hf_config=qwen2.hf_config,
        gguf_config=qwen2.gguf_config,
        gguf_names=qwen2.gguf_names,
    ),
    Architecture(
        gguf_name="qwen3",
        hf_names=("Qwen3ForCausalLM",),
        hf_config=qwen3.hf_config,
        gguf_config=qwen3.gguf_config,
        gguf_names=qwen2.gguf_names,
    ),
    Architecture(
        gguf_name="qwen3next",
        hf_names=("Qwen3NextForCausalLM",),
        hf_config=qwen3_next.hf_config_of_moe,
        gguf_config=qwen3_next.gguf_config,
        gguf_names=qwen3_next.gguf_names,
        build=qwen3_next.build_moe,
        hf_places=qwen3_next.hf_places,
        gguf_experts=True,
    ),
    Architecture(
        gguf_name="qwen35",
        hf_names=("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"),
        hf_config=qwen3_next.hf_config,
        gguf_config=qwen3_next.gguf_config,
        gguf_names=qwen3_next.gguf_names,
        build=qwen3_next.build,
        hf_prefixes=qwen3_next.PREFIXES,
    ),
    Architecture(
        gguf_name="qwen35moe",
        hf_names=("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"),
        hf_config=qwen3_next.hf_config_of_moe,
        gguf_config=qwen3_next.gguf_config,
        gguf_names=qwen3_next.gguf_names,
        build=qwen3_next.build_moe,
        hf_places=qwen3_next.hf_places,
        hf_prefixes=qwen3_next.PREFIXES,
        gguf_experts=True,
    ),
    Architecture(
        gguf_name="gemma2",
        hf_names=("Gemma2ForCausalLM",),
        hf_config=gemma2.hf_config,
        gguf_config=gemma2.gguf_config,
        gguf_names=qwen2.gguf_names,
    ),
    Architecture(
        gguf_name="gemma3",
        hf_names=("Gemma3ForCausalLM",),
        hf_config=gemma3.hf_config,
        gguf_config=gemma3.gguf_config,
        gguf_names=qwen2.gguf_names,
    ),
    Architecture(
        gguf_name="gemma3",
        hf_names=("Gemma3ForConditionalGeneration",),
        hf_config=gemma3_vision.hf_config,
        gguf_config=gemma3.gguf_config,
        gguf_names=qwen2.gguf_names,
        hf_prefixes=gemma3_vision.PREFIXES,
        build_tower=gemma3_vision.build_tower,
        projector=gemma3_vision.PROJECTOR,
    ),
    Architecture(
        gguf_name="gemma4",
        hf_names=("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"),
        hf_config=gemma4.hf_config,
        gguf_config=gemma4.gguf_config,
        gguf_names=gemma4.gguf_names,
        build=gemma4.build_gemma4,
        hf_places=gemma4.hf_places,
        hf_prefixes=gemma4.PREFIXES,
        hf_left_out=gemma4.TOWERS,
    ),
    Architecture(
        gguf_name="llama",
        hf_names=("Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"),
        hf_config=idefics3.hf_config,
        gguf_config=llama.gguf_config,
        hf_prefixes=idefics3.PREFIXES,
        build_tower=idefics3.build_tower,
        projector=idefics3.PROJECTOR,
    ),
    Architecture(
        gguf_name="lfm2",
        hf_names=("Lfm2ForCausalLM",),
        hf_config=lfm2.hf_config,
        gguf_config=lfm2.gguf_config,
        gguf_names=lfm2.gguf_names,
        hf_places=lfm2.hf_places,
    ),
    Architecture(
        gguf_name="lfm2moe",
        hf_names=("Lfm2MoeForCausalLM",),
        hf_config=lfm2.hf_config_of_moe,
        gguf_config=lfm2.gguf_config_of_moe,
        gguf_names=lfm2.gguf_names,
        build=build_sparse(lfm2.NAMES),
        hf_places=lfm2.hf_places,
        gguf_experts=True,
    ),
    Architecture(
        gguf_name="phi3",
        hf_names=("Phi3ForCausalLM",),
        hf_config=phi3.hf_config,
        gguf_config=phi3.gguf_config,
        gguf_names=phi3.gguf_names,
    ),
    Architecture(
        gguf_name="smollm3",
        hf_names=("SmolLM3ForCausalLM",),
        hf_config=smollm3.hf_config,
        gguf_config=smollm3.gguf_config,
    ),
    Architecture(
        gguf_name="starcoder2",
        hf_names=("Starcoder2ForCausalLM",),
        hf_config=starcoder2.hf_config,
        gguf_config=starcoder2.gguf_config,
        gguf_names=qwen2.gguf_names,
        hf_places=starcoder2.hf_places,
    ),
    Architecture(
        gguf_name="arcee",
        hf_names=("ArceeForCausalLM",),
        hf_config=arcee.hf_config,
        gguf_config=arcee.gguf_config,
    ),
    Architecture(
        gguf_name="granite",
        hf_names=("GraniteForCausalLM",),
        hf_config=granite.hf_config,
        gguf_config=granite.gguf_config,
    ),
    Architecture(
        gguf_name="granite",
        hf_names=("GraniteMoeHybridForCausalLM",),
        hf_config=granite.hf_config_of_4,
        gguf_config=granite.gguf_config,
        build=build_sparse(granite.NAMES),
        hf_places=granite.hf_places_of_4,
    ),
    Architecture(
        gguf_name="granitehybrid",
        hf_names=(),
        hf_config=granite.hf_config_of_4,
        gguf_config=granite.gguf_config_of_4,
        gguf_names=granite.gguf_names_of_4,
        build=build_sparse(granite.NAMES),
    ),
    Architecture(
        gguf_name="granitemoe",
        hf_names=("GraniteMoeForCausalLM",),
        hf_config=granite.hf_config_of_moe,
        gguf_config=granite.gguf_config_of_moe,
        gguf_names=granite.gguf_names_of_moe,
        build=build_sparse(granite.NAMES),
        hf_places=granite.hf_places_of_moe,
        gguf_experts=True,
    ),
    Architecture(
        gguf_name="olmo2",
        hf_names=("Olmo2ForCausalLM",),
        hf_config=olmo.hf_config,
        gguf_config=olmo.gguf_config,
        gguf_names=qwen2.gguf_names,
    ),
    Architecture(
        gguf_name="olmo2",
        hf_names=("Olmo3ForCausalLM",),
        hf_config=olmo.hf_config_of_3,
        gguf_config=olmo.gguf_config,
        gguf_names=qwen2.gguf_names,
    ),
    Architecture(
        gguf_name="glm4",
        hf_names=("Glm4ForCausalLM",),
        hf_config=glm4.hf_config,
        gguf_config=glm4.gguf_config,
        hf_places=glm4.hf_places,
    ),
    Architecture(
        gguf_name="command-r",
        hf_names=("CohereForCausalLM",),
        hf_config=cohere.hf_config,
        gguf_config=cohere.gguf_config,
    ),
    Architecture(
        gguf_name="cohere2",
        hf_names=("Cohere2ForCausalLM",),
        hf_config=cohere.hf_config_of_2,
        gguf_config=cohere.gguf_config_of_2,
    ),
    Architecture(
        gguf_name="seed_oss",
        hf_names=("SeedOssForCausalLM",),
        hf_config=seed_oss.hf_config,
        gguf_config=seed_oss.gguf_config,
        gguf_names=seed_oss.gguf_names,
    ),
    Architecture(
        gguf_name="ernie4_5",
        hf_names=("Ernie4_5ForCausalLM",),
        hf_config=ernie4_5.hf_config,
        gguf_config=ernie4_5.gguf_config,
    ),
    Architecture(
        gguf_name="hunyuan-dense",
        hf_names=("HunYuanDenseV1ForCausalLM",),
        hf_config=hunyuan.hf_config,
        gguf_config=hunyuan.gguf_config,
        gguf_names=qwen2.gguf_names,
        hf_places=hunyuan.hf_places,
    ),
    Architecture(
        gguf_name="exaone4",
        hf_names=("Exaone4ForCausalLM",),
        hf_config=exaone4.hf_config,
        gguf_config=exaone4.gguf_config,
        gguf_names=qwen2.gguf_names,
    ),
    Architecture(
        gguf_name="llama",
        hf_names=("MixtralForCausalLM",),
        hf_config=mixtral.hf_config,
        gguf_config=mixtral.gguf_config,
        gguf_names=mixtral.gguf_names,
        build=build_sparse(mixtral.NAMES),
        gguf_experts=True,
    ),
    Architecture(
        gguf_name="qwen3moe",
        hf_names=("Qwen3MoeForCausalLM",),
        hf_config=qwen3_moe.hf_config,
        gguf_config=qwen3_moe.gguf_config,
        gguf_names=qwen3_moe.gguf_names,
        build=build_sparse(qwen3_moe.NAMES),
        gguf_experts=True,
    ),
    Architecture(
        gguf_name="qwen2moe",
        hf_names=("Qwen2MoeForCausalLM",),
        hf_config=qwen2_moe.hf_config,
        gguf_config=qwen2_moe.gguf_config,
        gguf_names=qwen2_moe.gguf_names,
        build=build_sparse(qwen2_moe.NAMES),
        gguf_experts=True,
    ),
    Architecture(
        gguf_name="glm4moe",
        hf_names=("Glm4MoeForCausalLM",),
        hf_config=glm4_moe.hf_config,
        gguf_config=glm4_moe.gguf_config,
        gguf_names=glm4_moe.gguf_names,
        build=build_sparse(glm4_moe.NAMES),
        gguf_experts=True,
    ),
    Architecture(
        gguf_name="deepseek2",
        hf_names=("DeepseekV2ForCausalLM",),
        hf_config=deepseek.hf_config_of_2,
        gguf_config=deepseek.gguf_config,
        gguf_names=deepseek.gguf_names,
        build=build_sparse(deepseek.NAMES),
        gguf_experts=True,
    ),
    Architecture(
        gguf_name="deepseek2",
        hf_names=("DeepseekV3ForCausalLM",),
        hf_config=deepseek.hf_config_of_3,
        gguf_config=deepseek.gguf_config,
        gguf_names=deepseek.gguf_names,
        build=build_sparse(deepseek.NAMES),
        gguf_experts=True,
    ),
    Architecture(
        gguf_name="gpt-oss",
        hf_names=("GptOssForCausalLM",),
        hf_config=gpt_oss.hf_config,
        gguf_config=gpt_oss.gguf_config,
        gguf_names=gpt_oss.gguf_names,
        build=gpt_oss.build_gpt_oss,
        hf_places=gpt_oss.hf_places,
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
