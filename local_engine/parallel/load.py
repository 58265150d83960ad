"""A model read by several processes, each its own share, and served as if it were in one."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from local_engine.config import EngineConfig, ModelConfig
from local_engine.errors import EngineError, InvalidInput, ModelLoadError, RankLost
from local_engine.executor import Executor
from local_engine.kernels.gpu.loading import Recording
from local_engine.layers.lora import LowRank
from local_engine.loading.load import LoadedModel, load_model, model_shape
from local_engine.loading.shares import share_problem
from local_engine.loading.weights import Progress
from local_engine.parallel.executor import ParallelExecutor
from local_engine.parallel.group import RankGroup
from local_engine.parallel.messages import Kind, config_json
from local_engine.parallel.shared_adapter import AdapterNumbers

__all__ = ["describe_shares", "load_parallel"]

_logger = logging.getLogger(__name__)


def load_parallel(
    path: Path,
    config: EngineConfig,
    *,
    group: RankGroup | None = None,
    progress: Progress | None = None,
    recording: Recording | None = None,
    mmproj: Path | None = None,
) -> LoadedModel:
    """As `load_model`, over as many processes as `config.tensor_parallel` says; one of them is this.

    The model serves one engine, whose closing ends the processes. group: those that it is to use, and that outlive it;
    for one model at a time. Blocks. Raises ModelLoadError, InvalidInput for GPUs that are not there, and RankLost.
    """
    shape = model_shape(path, config)
    size = _number_of_ranks(path, shape, config)
    config = replace(config, tensor_parallel=size)
    if size == 1:
        return load_model(path, config, progress=progress, recording=recording, mmproj=mmproj)
    if not config.on_gpu and config.weights in ("int8", "int4"):
        raise ModelLoadError(path, f"weights: {config.weights} needs the CPU kernels, which compute in one process")
    own = group is None
    if group is None:
        # On a CPU a row never depends on the rows beside it; on a GPU it is asked for.
        ordered = config.deterministic or not config.on_gpu
        group = RankGroup(size, device=config.device, threads=config.threads, ordered=ordered)
    try:
        tower = None if mmproj is None else str(mmproj.absolute())
        with group.telling(Kind.LOAD, config, path=str(path.absolute()), mmproj=tower):
            loaded = load_model(path, config, progress=progress, recording=recording, ranks=group.ranks, mmproj=mmproj)
    except BaseException:
        if own:
            group.close()
        raise
    _logger.info("%s is shared by %d processes: %s", path.name, size, _share_line(shape, size))
    model = _ParallelModel(loaded, group, owns_group=own)
    return replace(loaded, open_executor=model.open_executor, read_adapter=model.read_adapter)


def _number_of_ranks(path: Path, shape: ModelConfig, config: EngineConfig) -> int:
    """Raises InvalidInput for GPUs that are not there, and ModelLoadError where the model does not divide."""
    wanted = config.tensor_parallel
    count = torch.cuda.device_count() if config.on_gpu else 1
    if wanted == "auto":
        return next((size for size in range(count, 1, -1) if share_problem(shape, size) is None), 1)
    if config.on_gpu and wanted > count:
        raise InvalidInput("tensor_parallel", f"{wanted} GPUs are wanted, {count} found")
    if problem := share_problem(shape, wanted):
        raise ModelLoadError(path, f"tensor_parallel: {wanted} processes cannot share it: {problem}")
    return wanted


def describe_shares(path: Path, config: EngineConfig) -> str:
    """How many processes would share the model, and what each would have of it, in a line. Loads nothing.

    Raises what `load_parallel` raises before it starts any.
    """
    shape = model_shape(path, config)
    size = _number_of_ranks(path, shape, config)
    return "in one process" if size == 1 else f"shared by {size} processes: {_share_line(shape, size)}"


def _share_line(shape: ModelConfig, size: int) -> str:
    """What each of so many processes has of a model, in a line."""
    heads, kv_heads = shape.num_heads // size, max(shape.num_kv_heads // size, 1)
    several = "" if shape.num_kv_heads >= size else f" (each on {size // shape.num_kv_heads})"
    words = [f"{heads} of {shape.num_heads} heads", f"{kv_heads} of {shape.num_kv_heads} kv heads{several}"]
    experts = shape.experts
    if experts is None or experts.dense_layers:
        words.append(f"{shape.intermediate_size // size} of {shape.intermediate_size} of the width")
    if experts is not None:
        words.append(f"{experts.intermediate_size // size} of {experts.intermediate_size} of every expert's width")
    return f"{', '.join(words)} and {-(-shape.vocab_size // size)} of {shape.vocab_size} tokens each"


class _ParallelModel:
    """Rank 0's share, and the processes that have the others."""

    def __init__(self, own: LoadedModel, group: RankGroup, *, owns_group: bool) -> None:
        self._own = own
        self._group = group
        self._owns_group = owns_group
        self._adapters = AdapterNumbers()
        self._is_open = False

    def open_executor(self, config: EngineConfig) -> Executor:
        """See `LoadedModel`. Raises InvalidInput too where an engine has it already."""
        if self._is_open:
            raise InvalidInput("tensor_parallel", "a model that is shared by processes serves one engine at a time")
        if self._group.is_closed:
            raise InvalidInput("tensor_parallel", "the processes that share the model have ended; load it again")
        try:
            with self._group.telling(Kind.OPEN, config) as reports:
                own = self._own.open_executor(config)
        except EngineError:
            if self._owns_group:
                self._group.close()
            raise
        self._is_open = True
        num_blocks = min(own.num_blocks, *(report["num_blocks"] for report in reports))
        return ParallelExecutor(
            own, self._group, config, num_blocks=num_blocks, adapters=self._adapters, closed=self._closed
        )

    def read_adapter(self, folder: Path) -> Mapping[str, LowRank]:
        """See `LoadedModel`. Steps wait while the other ranks read it."""
        shared = self._adapters.share(self._own.read_adapter(folder), self._adapters.next())
        self._group.ask(Kind.ADAPTER, config_json(EngineConfig(), number=shared.number, folder=str(folder.absolute())))
        return shared

    def _closed(self) -> None:
        """The engine is done with it."""
        self._is_open = False
        if self._owns_group:
            self._group.close()
        else:
            with suppress(RankLost):  # then there is nothing left to close
                self._group.ask(Kind.CLOSE)
