"""Models on the fused decoder of GPUs, on a CPU: by the twins of its kernels, or by kernels that Triton interprets."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from local_engine.config import EngineConfig
from local_engine.kernels.gpu.loading import load_fused
from local_engine.layers.ranks import ALONE, Ranks
from local_engine.loading.fields import FieldReader
from local_engine.loading.gguf_parts import open_gguf
from local_engine.loading.gguf_source import GgufSource
from local_engine.loading.load import LoadedModel, load_model
from local_engine.loading.module_names import ModuleNames
from local_engine.loading.packed.quantization import packing_of
from local_engine.loading.plain_source import PlainSource
from local_engine.loading.safetensors import SafetensorsSource
from local_engine.loading.weights import TensorSource
from local_engine.models.architecture import Architecture
from local_engine.models.registry import by_gguf_name, by_hf_name
from tests.local_engine.models.tiny_oracles import TEXT_ARCHITECTURES

__all__ = ["FUSED", "LEFT_TO_TORCH", "fused_config", "load_on_cpu"]

LEFT_TO_TORCH: Mapping[str, str] = {
    "Olmo2ForCausalLM": "rms norms after the layers' halves",
    "Olmo3ForCausalLM": "rms norms after the layers' halves",
    "CohereForCausalLM": "layer norms parallel the layers' halves",
    "Cohere2ForCausalLM": "layer norms parallel the layers' halves",
    "Qwen2MoeForCausalLM": "the experts of qwen2_moe",
    "Glm4MoeForCausalLM": "the experts of glm4_moe",
    "GraniteMoeForCausalLM": "the experts of granitemoe",
    "OlmoeForCausalLM": "the experts of olmoe",
    "ApertusForCausalLM": "feed-forward blocks without a gate",
    "NemotronForCausalLM": "feed-forward blocks without a gate",
    "StableLmForCausalLM": "layer_bias norms before the layers' halves",
    "FalconH1ForCausalLM": "layers of one half each, or with attention beside a recurrence",
    "NemotronHForCausalLM": "feed-forward blocks without a gate",
    "Llama4ForCausalLM": "windows that follow one another",
    "Llama4ForConditionalGeneration": "windows that follow one another",
    "Dots1ForCausalLM": "the experts of dots1",
    "MiniMaxM2ForCausalLM": "the experts of minimax-m2",
    "Ernie4_5_MoeForCausalLM": "the experts of ernie4_5_moe",
    "HunYuanMoEV1ForCausalLM": "the experts of hunyuan_v1_moe",
    "ExaoneMoeForCausalLM": "the experts of exaone_moe",
    "ExaoneMoEForCausalLM": "the experts of exaone_moe",
    "Starcoder2ForCausalLM": "feed-forward blocks without a gate",
    "ArceeForCausalLM": "feed-forward blocks without a gate",
    "DeepseekV2ForCausalLM": "latent attention",
    "DeepseekV3ForCausalLM": "latent attention",
    "Glm4MoeLiteForCausalLM": "latent attention",
    "Gemma4ForCausalLM": "layers that differ in their heads, or read each other's keys and values",
    "Gemma4ForConditionalGeneration": "layers that differ in their heads, or read each other's keys and values",
    "Qwen3NextForCausalLM": "recurrent layers",
    "Qwen3_5ForCausalLM": "recurrent layers",
    "Qwen3_5MoeForCausalLM": "recurrent layers",
    "Lfm2ForCausalLM": "recurrent layers",
    "Lfm2MoeForCausalLM": "recurrent layers",
    "HunYuanDenseV1ForCausalLM": "norms of queries and keys as turned_heads",
    "Exaone4ForCausalLM": "rms norms after the layers' halves",
}
"""Architectures that the fused decoder does not run, with what it says about it."""

FUSED = [name for name in TEXT_ARCHITECTURES if name not in LEFT_TO_TORCH]


def fused_config(**overrides: Any) -> EngineConfig:
    return replace(EngineConfig(dtype="float32", block_size=4, kv_bytes=1 << 20, max_batch_tokens=64), **overrides)


def load_on_cpu(path: Path, config: EngineConfig | None = None, *, ranks: Ranks = ALONE) -> LoadedModel:
    """A folder of safetensors, or a GGUF. ranks: those that share it."""
    config = config or fused_config()
    reference = load_model(path, EngineConfig(dtype="float32", max_context=config.max_context))
    with _source(path, reference) as source:
        fused = load_fused(source, reference.info.config, config, ranks=ranks)
    assert fused is not None
    architecture = _architecture(path, reference)
    names = ModuleNames(architecture.hf_prefixes, architecture.hf_places(reference.info.config))
    read_adapter = partial(fused.read_adapter, names=names)
    return replace(reference, open_executor=fused.open_executor, read_adapter=read_adapter)


def _architecture(path: Path, loaded: LoadedModel) -> Architecture:
    if path.is_dir():
        found = by_hf_name(json.loads((path / "config.json").read_text(encoding="utf-8"))["architectures"][0])
    else:
        found = by_gguf_name(loaded.info.config.architecture, experts=False)
    assert found is not None
    return found


@contextmanager
def _source(path: Path, loaded: LoadedModel) -> Iterator[TensorSource]:
    architecture = _architecture(path, loaded)
    if path.is_dir():
        values = json.loads((path / "config.json").read_text(encoding="utf-8"))
        packing = packing_of(FieldReader(path / "config.json", values))
        prefixes, left_out = architecture.hf_prefixes, architecture.hf_left_out
        with closing(SafetensorsSource(path, prefixes=prefixes, left_out=left_out)) as stored:
            yield PlainSource(stored, packing=packing, names=architecture.hf_places(loaded.info.config))
    else:
        with open_gguf(path) as parts:
            yield GgufSource(parts, architecture.gguf_names(loaded.info.config))
