"""From a path to an encoder that can run: BERT-style models, and what kind of model a path holds at all."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from local_engine.config import EngineConfig
from local_engine.device import check_device
from local_engine.encoder_engine import EncoderModel
from local_engine.encoding import EncoderInfo, ModelKind
from local_engine.errors import ModelLoadError
from local_engine.layers.ops import best_ops
from local_engine.layers.pooling import Pooling
from local_engine.loading.fields import FieldReader
from local_engine.loading.gguf import GgufFile
from local_engine.loading.gguf_source import GgufSource
from local_engine.loading.plain_source import HfName, PlainSource, StoredTensor
from local_engine.loading.safetensors import SafetensorsSource, read_json
from local_engine.loading.sentence_layout import SentenceLayout, sentence_layout
from local_engine.loading.weights import Progress, TensorSource, Weights
from local_engine.models import bert

__all__ = ["load_encoder", "model_kind"]

_BERT: Final = ("Bert", "Roberta", "XLMRoberta")
_SCORING = "ForSequenceClassification"
_GGUF_POOLINGS: Mapping[int, Pooling] = {1: "mean", 2: "cls", 3: "last"}
_GGUF_RANK = 4


def model_kind(path: Path) -> ModelKind:
    """What a GGUF file, or a folder of safetensors, is for. Reads no weights. Raises ModelLoadError."""
    if path.is_dir():
        name = _architecture(FieldReader(path / "config.json", read_json(path / "config.json")))
        if name.endswith(_SCORING):
            return "scoring"
        return "embedding" if name.endswith("Model") or (path / "modules.json").is_file() else "generation"
    with GgufFile(path) as file:
        return _gguf_kind(FieldReader(path, file.metadata))


def load_encoder(path: Path, config: EngineConfig, *, progress: Progress | None = None) -> EncoderModel:
    """Reads an embedding model or a cross-encoder into `config.device` as `config.dtype`.

    Blocks: run it in a thread. `progress` is called from that thread with (bytes done, bytes in all). Raises
    ModelLoadError, and InvalidInput for a device that is not there.
    """
    check_device(config.device)
    return _load_folder(path, config, progress) if path.is_dir() else _load_gguf(path, config, progress)


def _architecture(fields: FieldReader) -> str:
    return (*fields.texts("architectures"), "none")[0]


def _gguf_kind(fields: FieldReader) -> ModelKind:
    name = fields.text("general.architecture")
    pooling = fields.integer(f"{name}.pooling_type", 0)
    if pooling == _GGUF_RANK:
        return "scoring"
    return "embedding" if name == "bert" or pooling else "generation"


@dataclass(frozen=True, slots=True)
class _Buffers:
    """A `Packing` that packs nothing: it knows the tables of positions that old files carry beside the weights."""

    def tensors(self, file: SafetensorsSource) -> dict[str, StoredTensor]:
        return {}

    def stacked(self, file: SafetensorsSource, name: HfName) -> StoredTensor | None:
        return None

    def unused(self, name: str) -> bool:
        return name.endswith("embeddings.position_ids")

    def stored_name(self, name: str) -> str:
        return name


def _load_folder(folder: Path, config: EngineConfig, progress: Progress | None) -> EncoderModel:
    file = folder / "config.json"
    fields = FieldReader(file, read_json(file))
    name = _architecture(fields)
    scores = name.endswith(_SCORING)
    family = name.removesuffix(_SCORING).removesuffix("Model")
    if family not in _BERT:
        fields.refuse(f"architecture {name!r} is not supported; supported are the encoders {', '.join(_BERT)}")
    shape = bert.hf_config(fields, roberta=family != "Bert", scores=scores)
    if scores:
        shape = replace(shape, sigmoid=_is_sigmoid(fields))
    layout = sentence_layout(folder) if not scores else None
    layout = layout or SentenceLayout(pooling="mean", normalized=True, max_tokens=None)
    info = EncoderInfo(
        kind="scoring" if scores else "embedding",
        vocab_size=shape.vocab_size,
        max_tokens=_least(shape.max_tokens, layout.max_tokens, config.max_context),
        size=1 if scores else shape.hidden_size,
        normalized=layout.normalized,
        dimensions=_dimensions(fields),
    )
    with contextlib.closing(SafetensorsSource(folder)) as stored:
        source = PlainSource(stored, packing=_Buffers())
        return _build(shape, info, source, config, progress, pooling=layout.pooling)


def _load_gguf(path: Path, config: EngineConfig, progress: Progress | None) -> EncoderModel:
    with GgufFile(path) as file:
        fields = FieldReader(path, file.metadata)
        name = fields.text("general.architecture")
        if name != "bert":
            fields.refuse(f"architecture {name!r} is not supported; the supported encoder is bert")
        scores = _gguf_kind(fields) == "scoring"
        shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
        shape = bert.gguf_config(fields, shapes, scores=scores)
        pooling = fields.integer("bert.pooling_type", 1)
        if not scores and pooling not in _GGUF_POOLINGS:
            fields.refuse(f"bert.pooling_type {pooling}, supported are mean (1), cls (2), last (3) and rank (4)")
        info = EncoderInfo(
            kind="scoring" if scores else "embedding",
            vocab_size=shape.vocab_size,
            max_tokens=_least(shape.max_tokens, fields.integer("bert.context_length"), config.max_context),
            size=1 if scores else shape.hidden_size,
        )
        source = GgufSource([file], bert.gguf_names(shape))
        return _build(shape, info, source, config, progress, pooling=_GGUF_POOLINGS.get(pooling, "cls"))


def _build(
    shape: bert.BertConfig,
    info: EncoderInfo,
    source: TensorSource,
    config: EngineConfig,
    progress: Progress | None,
    *,
    pooling: Pooling,
) -> EncoderModel:
    if problem := shape.problem():
        raise ModelLoadError(source.path, problem)
    device, dtype = torch.device(config.device), getattr(torch, config.dtype)
    weights = Weights(source, device=device, dtype=dtype, progress=progress)
    with torch.inference_mode():
        model = bert.Bert(shape, info, weights, best_ops(device, dtype), pooling=pooling)
    weights.finish()
    return model


def _least(*limits: int | None) -> int:
    return max(1, min(limit for limit in limits if limit is not None))


def _dimensions(fields: FieldReader) -> tuple[int, ...]:
    """The sizes that embeddings may be cut to, as config.json names them for models trained so (matryoshka)."""
    named = fields.integers("matryoshka_dimensions")
    return named or ((0,) if fields.boolean("is_matryoshka", False) else ())


def _is_sigmoid(fields: FieldReader) -> bool:
    """Whether a cross-encoder's scores go through a sigmoid, as they do unless config.json names another function."""
    table = fields.table("sentence_transformers")
    named = "" if table is None else table.text("activation_fn", "")
    function = (named or fields.text("sbert_ce_default_activation_function", "Sigmoid")).rpartition(".")[2]
    if function not in ("Sigmoid", "Identity"):
        fields.refuse(f"activation_fn {function!r}, supported are Sigmoid and Identity")
    return function == "Sigmoid"
