"""Whether the fused decoder runs a model on a device, and its weights read for it.

Says in one log line what runs it, or why torch does.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from local_engine.config import EngineConfig, ModelConfig
from local_engine.errors import ModelLoadError
from local_engine.executor import Executor
from local_engine.kernels.dispatch import choose_kernels, device_facts, gpu_line, no_kernels
from local_engine.kernels.gpu.decoder import FusedDecoder, unsupported
from local_engine.kernels.gpu.matrices import Matrices, Rounding
from local_engine.layers.lora import LowRank
from local_engine.layers.ranks import ALONE, Ranks
from local_engine.loading.lora import load_adapter
from local_engine.loading.shares import Shares
from local_engine.loading.weights import Progress, TensorSource, Weights

__all__ = ["FusedModel", "Recording", "load_fused"]

_logger = logging.getLogger(__name__)

# Called with decode steps that are recorded, and steps in all.
Recording = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FusedModel:
    """See `LoadedModel`, of which these are the fields. read_adapter: `load_adapter` of a folder and `names`."""

    open_executor: Callable[[EngineConfig], Executor]
    read_adapter: Callable[..., Mapping[str, LowRank]]


def load_fused(
    source: TensorSource,
    shape: ModelConfig,
    config: EngineConfig,
    *,
    progress: Progress | None = None,
    recording: Recording | None = None,
    ranks: Ranks = ALONE,
) -> FusedModel | None:
    """Reads the weights as `config.float_dtype`, or returns None with a log line that says why torch has to.

    Raises ModelLoadError for a file that is wrong, and where `config` asks for what torch cannot do.
    """
    device, dtype = torch.device(config.device), getattr(torch, config.float_dtype)
    facts = device_facts(device)
    reason = no_kernels(facts, config.stored_kv_dtype) or unsupported(shape)
    if reason is not None:
        if config.deterministic or config.weights in ("int8", "int4"):
            asked = "deterministic" if config.deterministic else f"weights: {config.weights}"
            raise ModelLoadError(source.path, f"{asked} needs the GPU kernels: {reason}")
        _logger.info("%s runs on torch in %s, not on the GPU kernels: %s", source.path.name, config.float_dtype, reason)
        return None
    # Triton is not everywhere: what stands on it is imported where it is.
    from local_engine.kernels.gpu.executor import GpuExecutor

    kernels = choose_kernels(facts)
    rounding: Rounding = config.weights if config.weights in ("int8", "int4") else "none"
    if shape.experts is not None and rounding != "none":
        raise ModelLoadError(source.path, f"weights: {rounding} does not go with experts")
    if config.deterministic and rounding != "none":
        raise ModelLoadError(source.path, f"deterministic: does not go with weights: {rounding}")
    shares = Shares(shape, ranks)
    weights = Weights(source, device=device, dtype=dtype, progress=progress, shares=shares)
    matrices = Matrices(
        weights,
        kernels,
        processors=facts.processors,
        packed=config.weights == "auto" and not config.deterministic,
        rounding=rounding,
        tiled=config.deterministic,
    )
    with torch.inference_mode():
        model = FusedDecoder(shares.shape, matrices)
    weights.finish()
    _logger.info("%s runs in %s on %s", source.path.name, config.float_dtype, gpu_line(facts, kernels.choices))
    sites = weights.lora_sites
    return FusedModel(
        open_executor=partial(GpuExecutor, model, lora_sites=sites, facts=facts, recording=recording),
        # Executors put them on the device, in slots of their own.
        read_adapter=partial(load_adapter, sites=sites, device=torch.device("cpu"), dtype=dtype),
    )
