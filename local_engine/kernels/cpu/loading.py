"""Whether the fused kernels run a model, and its weights packed for them.

Says in one log line what runs it, or why torch does.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from local_engine.config import EngineConfig, ModelConfig
from local_engine.errors import InvalidInput, ModelLoadError
from local_engine.images import EncodeImage
from local_engine.kernels.cpu.decoder import PackedDecoder, build_decoder, unsupported
from local_engine.kernels.cpu.executor import CACHE_BYTES
from local_engine.kernels.cpu.library import Library, best_library, open_library
from local_engine.kernels.cpu.packing import NotPackable, Rounding
from local_engine.layers.lora import LowRank
from local_engine.loading.lora import load_adapter
from local_engine.loading.weights import Progress, TensorSource, Weights
from local_engine.models.sparse_mlp import ExpertNames

__all__ = ["FusedModel", "chosen_library", "load_fused"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FusedModel:
    """A packed model; the rest as `LoadedModel` has it. read_adapter: `load_adapter` of a folder and `names`."""

    model: PackedDecoder
    read_adapter: Callable[..., Mapping[str, LowRank]]
    encode_image: EncodeImage | None


def chosen_library(config: EngineConfig) -> Library | None:
    """The build that runs here, None without one. Raises InvalidInput for one that is named and does not run here."""
    best = best_library()
    wanted = config.cpu_instruction_set
    if wanted == "auto" or best is None:
        return best
    library = open_library(wanted) if best.runs(wanted) else None
    if library is None:
        raise InvalidInput("cpu_instruction_set", f"{wanted} is not built, or this CPU does not have it")
    return library


def load_fused(
    source: TensorSource,
    shape: ModelConfig,
    config: EngineConfig,
    progress: Progress | None,
    *,
    expert_names: ExpertNames | None = None,
    read_tower: Callable[[Weights], EncodeImage] | None = None,
) -> FusedModel | None:
    """Reads the weights, or returns None with a log line that says why torch has to. A tower computes in torch.
    expert_names: of a sparse model.

    Raises ModelLoadError for a file that is wrong, and where `config.weights` asks for what torch cannot do.
    """
    library = chosen_library(config)
    reason = _refusal(library, shape, config)
    if library is not None and reason is None:
        rounding: Rounding = config.weights if config.weights in ("int8", "int4") else "none"
        weights = Weights(source, device=torch.device("cpu"), dtype=torch.float32, progress=progress)
        try:
            model = build_decoder(shape, library, weights, rounding=rounding, expert_names=expert_names)
        except NotPackable as error:
            reason = str(error)
        else:
            encode_image = None if read_tower is None else read_tower(weights)
            weights.finish()
            _logger.info("%s runs on the CPU kernels for %s", source.path.name, library.instruction_set)
            read_adapter = partial(
                load_adapter, sites=weights.lora_sites, device=torch.device("cpu"), dtype=torch.float32
            )
            return FusedModel(model, read_adapter, encode_image)
    if config.weights in ("int8", "int4"):
        raise ModelLoadError(source.path, f"weights: {config.weights} needs the CPU kernels: {reason}")
    _logger.info("%s runs on torch in %s, not on the CPU kernels: %s", source.path.name, config.float_dtype, reason)
    return None


def _refusal(library: Library | None, shape: ModelConfig, config: EngineConfig) -> str | None:
    if library is None:
        return "they are not built; install the package where a C++ compiler is"
    if config.kv_dtype not in CACHE_BYTES:
        return f"kv_dtype {config.kv_dtype} is torch's"
    return unsupported(shape)
