"""Models on the fused decoder of GPUs, on a CPU: by the twins of its kernels, or by kernels that Triton interprets."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from local_engine.config import EngineConfig
from local_engine.kernels.gpu.loading import load_fused
from local_engine.loading.load import LoadedModel, load_model
from local_engine.loading.plain_source import PlainSource
from local_engine.loading.safetensors import SafetensorsSource

__all__ = ["fused_config", "load_on_cpu"]


def fused_config(**overrides: Any) -> EngineConfig:
    return replace(EngineConfig(dtype="float32", block_size=4, kv_bytes=1 << 20, max_batch_tokens=64), **overrides)


def load_on_cpu(folder: Path, config: EngineConfig | None = None) -> LoadedModel:
    """A folder of safetensors."""
    config = config or fused_config()
    reference = load_model(folder, EngineConfig(dtype="float32", max_context=config.max_context))
    with closing(SafetensorsSource(folder)) as stored:
        fused = load_fused(PlainSource(stored), reference.info.config, config)
    assert fused is not None
    return replace(reference, open_executor=fused.open_executor, read_adapter=fused.read_adapter)
