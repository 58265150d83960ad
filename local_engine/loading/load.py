"""From a path to a model that can run, with what its files say about how to use it."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import torch

from local_engine.config import EngineConfig, ModelConfig
from local_engine.errors import InvalidInput, ModelLoadError
from local_engine.executor import Executor
from local_engine.images import EncodeImage
from local_engine.kernels.cpu.executor import CpuExecutor, step_rows
from local_engine.kernels.cpu.loading import load_fused
from local_engine.kernels.gpu.loading import Recording
from local_engine.kernels.gpu.loading import load_fused as load_for_gpu
from local_engine.layers.lora import LowRank
from local_engine.layers.ops import best_ops
from local_engine.layers.ranks import ALONE, Ranks
from local_engine.loading.fields import FieldReader
from local_engine.loading.gguf import GgufFile, MetadataValue
from local_engine.loading.gguf_parts import open_gguf
from local_engine.loading.gguf_source import GgufSource
from local_engine.loading.lora import load_adapter
from local_engine.loading.module_names import ModuleNames
from local_engine.loading.packed.quantization import packing_of
from local_engine.loading.plain_source import PlainSource
from local_engine.loading.safetensors import SafetensorsSource, read_json
from local_engine.loading.shares import Shares
from local_engine.loading.tower_file import TowerFile
from local_engine.loading.weights import Progress, TensorSource, Weights
from local_engine.models.architecture import Architecture
from local_engine.models.registry import ARCHITECTURES, by_gguf_name, by_hf_name
from local_engine.sampling import SamplingDefaults
from local_engine.torch_executor import TorchExecutor

__all__ = ["LoadedModel", "ModelInfo", "load_model", "model_shape"]

_GGUF_STOP_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model's files say about it. stop_token_ids: every token that ends an answer, not the first alone."""

    path: Path
    config: ModelConfig
    stop_token_ids: tuple[int, ...]
    defaults: SamplingDefaults


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with its weights in memory, and its facts. Any number of engines may share it.

    open_executor: takes a KV pool over the weights; raises InvalidInput where it does not fit.
    read_adapter: what the LoRA adapter in a folder adds to each linear layer; blocks, and raises ModelLoadError.
    encode_image: from pixels to rows, of a model that reads images.
    step_rows: what a step costs beside its rows, in rows, where a row's result does not depend on those beside it, so
        that guessed tokens change no answer; None where they might.
    load_id: no other load has it, of the same path or another.
    """

    open_executor: Callable[[EngineConfig], Executor]
    read_adapter: Callable[[Path], Mapping[str, LowRank]]
    info: ModelInfo
    encode_image: EncodeImage | None = None
    step_rows: float | None = None
    load_id: str = field(default_factory=lambda: uuid4().hex)


def load_model(
    path: Path,
    config: EngineConfig,
    *,
    progress: Progress | None = None,
    recording: Recording | None = None,
    ranks: Ranks = ALONE,
    mmproj: Path | None = None,
) -> LoadedModel:
    """Reads a GGUF file, or a folder of safetensors with config.json, for `config.device`.

    For the device's fused kernels where they can run the model; else as `config.float_dtype` for torch.

    Blocks: run it in a thread. `progress` is called from that thread with (bytes done, bytes in all), and `recording`
    when an engine is opened on a GPU, with (decode steps recorded, steps in all).

    ranks: those that share the model, as `config.tensor_parallel` says; this one's part is read. `parallel.load` does
    that with processes of its own. mmproj: the tower of a GGUF that reads images; a folder has its own.

    Raises ModelLoadError, and InvalidInput for a device that is not there.
    """
    _check_device(config)
    if config.tensor_parallel != ranks.size:
        raise InvalidInput("tensor_parallel", f"is {config.tensor_parallel}, and the model is read by {ranks.size}")
    if not path.is_dir():
        return _load_gguf(path, mmproj, config, progress=progress, recording=recording, ranks=ranks)
    if mmproj is not None:
        raise ModelLoadError(mmproj, f"goes with a GGUF, and {path.name} is a folder")
    return _load_folder(path, config, progress, recording, ranks=ranks)


def model_shape(path: Path, config: EngineConfig) -> ModelConfig:
    """What `ModelInfo.config` of a model will be, from the head of its file. Blocks. Raises ModelLoadError."""
    if path.is_dir():
        return _folder_shape(path, config)[1]
    with open_gguf(path) as parts:
        return _gguf_shape(path, parts, config)[1]


def _check_device(config: EngineConfig) -> None:
    try:
        torch.empty(1, device=config.device)
    except (AssertionError, RuntimeError) as error:  # torch asserts when it was built without the device
        raise InvalidInput("device", f"{config.device!r} cannot be used: {error}".splitlines()[0]) from error


def _gguf_shape(path: Path, parts: Sequence[GgufFile], config: EngineConfig) -> tuple[Architecture, ModelConfig]:
    fields = FieldReader(path, parts[0].metadata)
    name = fields.text("general.architecture")
    experts = fields.integer(f"{name}.expert_count", 0) > 0
    architecture = _known(path, by_gguf_name(name, experts=experts), name)
    shapes = {name: tensor.shape for part in parts for name, tensor in part.tensors.items()}
    return architecture, _checked(path, architecture.gguf_config(fields, shapes), config)


def _load_gguf(
    path: Path,
    mmproj: Path | None,
    config: EngineConfig,
    *,
    progress: Progress | None,
    recording: Recording | None,
    ranks: Ranks,
) -> LoadedModel:
    with contextlib.ExitStack() as opened:
        parts = opened.enter_context(open_gguf(path))
        metadata = parts[0].metadata
        fields = FieldReader(path, metadata)
        architecture, shape = _gguf_shape(path, parts, config)
        read_tower = None
        if mmproj is not None:
            tower = opened.enter_context(TowerFile(mmproj))
            shape = tower.with_vision(shape, architecture, fields)
            read_tower = partial(tower.read, shape)
        info = ModelInfo(path, shape, _gguf_stop_ids(metadata, shape), _gguf_defaults(fields))
        source = GgufSource(parts, architecture.gguf_names(shape))
        return _build(
            architecture, source, info, config, read_tower, progress=progress, recording=recording, ranks=ranks
        )


def _folder_shape(folder: Path, config: EngineConfig) -> tuple[Architecture, ModelConfig]:
    file = folder / "config.json"
    values = read_json(file)
    named = values.get("architectures")
    name = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else "none"
    architecture = _known(file, by_hf_name(name), name)
    return architecture, _checked(file, architecture.hf_config(FieldReader(file, values)), config)


def _load_folder(
    folder: Path, config: EngineConfig, progress: Progress | None, recording: Recording | None, *, ranks: Ranks
) -> LoadedModel:
    architecture, shape = _folder_shape(folder, config)
    file = folder / "config.json"
    fields = FieldReader(file, read_json(file))
    generation_file = folder / "generation_config.json"
    generation = FieldReader(generation_file, read_json(generation_file) if generation_file.is_file() else {})
    stop_ids = generation.integers("eos_token_id") or fields.integers("eos_token_id")
    if not stop_ids and (text := fields.table("text_config")) is not None:
        stop_ids = text.integers("eos_token_id")
    defaults = SamplingDefaults(
        temperature=generation.optional_number("temperature"),
        top_p=generation.optional_number("top_p"),
        top_k=generation.optional_integer("top_k"),
        min_p=generation.optional_number("min_p"),
        repetition_penalty=generation.optional_number("repetition_penalty"),
        max_tokens=generation.optional_integer("max_new_tokens"),
    )
    info = ModelInfo(folder, shape, _in_vocabulary(stop_ids, shape), defaults)
    packing = packing_of(fields)
    with contextlib.closing(
        SafetensorsSource(folder, prefixes=architecture.hf_prefixes, left_out=architecture.hf_left_out)
    ) as stored:
        source = PlainSource(stored, packing=packing, names=architecture.hf_places(shape))
        read_tower = None if architecture.build_tower is None else partial(architecture.build_tower, shape)
        return _build(
            architecture, source, info, config, read_tower, progress=progress, recording=recording, ranks=ranks
        )


def _build(
    architecture: Architecture,
    source: TensorSource,
    info: ModelInfo,
    config: EngineConfig,
    read_tower: Callable[[Weights], EncodeImage] | None,
    *,
    progress: Progress | None,
    recording: Recording | None,
    ranks: Ranks,
) -> LoadedModel:
    shares = Shares(info.config, ranks)
    names = ModuleNames(architecture.hf_prefixes, architecture.hf_places(info.config))
    if ranks.rank:
        read_tower = None  # rank 0 alone reads images, and hands out what becomes of them
    if config.on_gpu:
        torch.backends.cuda.matmul.allow_tf32 = config.tf32
        on_gpu = load_for_gpu(source, info.config, config, progress=progress, recording=recording, ranks=ranks)
        if on_gpu is not None:
            return LoadedModel(on_gpu.open_executor, partial(on_gpu.read_adapter, names=names), info)
    if config.device == "cpu" and config.wants_kernels and ranks.size == 1:
        fused = load_fused(
            source, info.config, config, progress, expert_names=architecture.expert_names, read_tower=read_tower
        )
        if fused is not None:
            return LoadedModel(
                open_executor=partial(CpuExecutor, fused.model),
                read_adapter=partial(fused.read_adapter, names=names),
                info=info,
                encode_image=fused.encode_image,
                step_rows=step_rows(info.config),
            )
    device, dtype = torch.device(config.device), getattr(torch, config.float_dtype)
    weights = Weights(source, device=device, dtype=dtype, progress=progress, shares=shares)
    with torch.inference_mode():
        model = architecture.build(shares.shape, weights, best_ops(device, dtype))
        encode_image = None if read_tower is None else read_tower(weights)
    weights.finish()
    sites = weights.lora_sites
    return LoadedModel(
        open_executor=partial(TorchExecutor, model, lora_sites=sites),
        read_adapter=partial(load_adapter, sites=sites, names=names, device=device, dtype=dtype),
        info=info,
        encode_image=encode_image,
    )


def _known(path: Path, architecture: Architecture | None, name: str) -> Architecture:
    if architecture is None:
        supported = ", ".join(f"{row.gguf_name} ({', '.join(row.hf_names)})" for row in ARCHITECTURES)
        raise ModelLoadError(path, f"architecture {name!r} is not supported; supported are {supported}")
    return architecture


def _checked(path: Path, shape: ModelConfig, config: EngineConfig) -> ModelConfig:
    """The shape, with no larger a window than the engine's: what longrope does depends on the window served."""
    if problem := shape.problem():
        raise ModelLoadError(path, problem)
    asked = config.max_context or shape.default_context or shape.max_context
    return replace(shape, max_context=min(shape.max_context, asked))


def _gguf_defaults(fields: FieldReader) -> SamplingDefaults:
    """The GGUF keys `general.sampling.*`, as llama.cpp writes them."""
    return SamplingDefaults(
        temperature=fields.optional_number("general.sampling.temp"),
        top_p=fields.optional_number("general.sampling.top_p"),
        top_k=fields.optional_integer("general.sampling.top_k"),
        min_p=fields.optional_number("general.sampling.min_p"),
        repetition_penalty=fields.optional_number("general.sampling.penalty_repeat"),
    )


def _gguf_stop_ids(metadata: Mapping[str, MetadataValue], config: ModelConfig) -> tuple[int, ...]:
    values = [metadata.get(f"tokenizer.ggml.{key}") for key in _GGUF_STOP_KEYS]
    return _in_vocabulary([value for value in values if type(value) is int], config)


def _in_vocabulary(token_ids: "list[int] | tuple[int, ...]", config: ModelConfig) -> tuple[int, ...]:
    """Without repeats, in order; ids that the model cannot produce (padding values such as -1) are left out."""
    return tuple(dict.fromkeys(token_id for token_id in token_ids if 0 <= token_id < config.vocab_size))
