"""From a path to an encoder that can run (BERT-style models, decoders whose vectors are pooled), and what kind of model
a path holds at all."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from local_engine.config import EngineConfig, ModelConfig
from local_engine.device import check_device
from local_engine.encoder_engine import EncoderModel
from local_engine.encoding import EncoderInfo, ModelKind
from local_engine.errors import ModelLoadError
from local_engine.layers.linear import Linear
from local_engine.layers.ops import Ops, best_ops
from local_engine.layers.pooling import Pooling
from local_engine.loading.fields import FieldReader
from local_engine.loading.gguf import GgufFile
from local_engine.loading.gguf_parts import open_gguf
from local_engine.loading.gguf_source import GgufSource
from local_engine.loading.packed.quantization import packing_of
from local_engine.loading.plain_source import HfName, PlainSource, StoredTensor
from local_engine.loading.safetensors import SafetensorsSource, read_json
from local_engine.loading.sentence_layout import SentenceLayout, sentence_layout
from local_engine.loading.weights import Progress, TensorSource, Weights
from local_engine.models import bert
from local_engine.models.architecture import Architecture
from local_engine.models.pooled_decoder import PooledDecoder
from local_engine.models.registry import by_gguf_name, by_hf_name

__all__ = ["load_encoder", "model_kind"]

_BERT: Final = ("Bert", "Roberta", "XLMRoberta")
_SCORING = "ForSequenceClassification"
_GENERATING = "ForCausalLM"
# A long text costs the square of its length in attention masks; `context` in run.yaml may ask for more.
_DECODER_TOKENS = 8192
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
    """Reads an embedding model or a cross-encoder into `config.device` as `config.float_dtype`.

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
    family = name.removesuffix(_SCORING).removesuffix("Model").removesuffix("Text").removesuffix(_GENERATING)
    decoder = None if scores else by_hf_name(f"{family}{_GENERATING}")
    if decoder is not None:
        return _load_decoder(folder, fields, decoder, config, progress=progress)
    if family not in _BERT:
        known = f"{', '.join(_BERT)} and, for embeddings, the decoders"
        fields.refuse(f"architecture {name!r} is not supported; supported encoders are {known}")
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


def _load_decoder(
    folder: Path, fields: FieldReader, decoder: Architecture, config: EngineConfig, *, progress: Progress | None
) -> EncoderModel:
    for name, causal in (("is_causal", True), ("use_bidirectional_attention", False)):
        if fields.boolean(name, causal) is not causal:
            fields.refuse(f"{name}: a decoder that looks both ways is not supported")
    layout = sentence_layout(folder) or SentenceLayout(pooling="last", normalized=True, max_tokens=None)
    shape = decoder.hf_config(fields)
    with contextlib.closing(SafetensorsSource(folder, under="model.")) as stored:
        source = PlainSource(stored, packing=packing_of(fields), names=decoder.hf_places(shape))
        return _pooled(decoder, shape, layout, source, config, progress=progress, dimensions=_dimensions(fields))


def _pooled(
    decoder: Architecture,
    shape: ModelConfig,
    layout: SentenceLayout,
    source: TensorSource,
    config: EngineConfig,
    *,
    progress: Progress | None,
    dimensions: tuple[int, ...] = (),
) -> EncoderModel:
    """A decoder without its head."""
    if problem := shape.problem():
        raise ModelLoadError(source.path, problem)
    max_tokens = _least(shape.max_context, layout.max_tokens, config.max_context or _DECODER_TOKENS)
    info = EncoderInfo(
        kind="embedding",
        vocab_size=shape.vocab_size,
        max_tokens=max_tokens,
        size=shape.hidden_size,
        normalized=layout.normalized,
        dimensions=dimensions,
    )
    device, dtype = torch.device(config.device), getattr(torch, config.float_dtype)
    weights = Weights(source, device=device, dtype=dtype, progress=progress)
    weights.skip("model.lm_head.weight")
    shape = replace(shape, tie_embeddings=True, max_context=max_tokens)
    with torch.inference_mode():
        model = decoder.build(shape, weights, _headless(best_ops(device, dtype), shape.vocab_size))
    weights.finish()
    return PooledDecoder(model, info, config, pooling=layout.pooling, lora_sites=weights.lora_sites)


class _OnDemand:
    """A linear layer that is made when it is first called."""

    def __init__(self, make: Callable[[], Linear]) -> None:
        self._make = make
        self._made: Linear | None = None

    def __call__(self, x: Tensor) -> Tensor:
        self._made = self._made or self._make()
        return self._made(x)


def _headless(ops: Ops, vocab_size: int) -> Ops:
    """The operations, but for the head: nobody calls it, so it shall not cost another copy of the embedding."""

    def linear(weight: Tensor, bias: Tensor | None) -> Linear:
        may_be_head = weight.shape[0] == vocab_size
        return _OnDemand(partial(ops.linear, weight, bias)) if may_be_head else ops.linear(weight, bias)

    return replace(ops, linear=linear)


def _load_gguf(path: Path, config: EngineConfig, progress: Progress | None) -> EncoderModel:
    with open_gguf(path) as parts:
        fields = FieldReader(path, parts[0].metadata)
        name = fields.text("general.architecture")
        scores = _gguf_kind(fields) == "scoring"
        shapes = {name: tensor.shape for part in parts for name, tensor in part.tensors.items()}
        pooling = fields.integer(f"{name}.pooling_type", 1)
        if not scores and pooling not in _GGUF_POOLINGS:
            fields.refuse(f"{name}.pooling_type {pooling}, supported are mean (1), cls (2), last (3) and rank (4)")
        decoder = by_gguf_name(name, experts=fields.integer(f"{name}.expert_count", 0) > 0)
        if decoder is not None and not scores:
            layout = SentenceLayout(_GGUF_POOLINGS[pooling], normalized=True, max_tokens=None)
            decoder_shape = decoder.gguf_config(fields, shapes)
            source = GgufSource(parts, decoder.gguf_names(decoder_shape))
            return _pooled(decoder, decoder_shape, layout, source, config, progress=progress)
        if name != "bert":
            fields.refuse(f"architecture {name!r} is not supported; bert is, and for embeddings the decoders")
        shape = bert.gguf_config(fields, shapes, scores=scores)
        info = EncoderInfo(
            kind="scoring" if scores else "embedding",
            vocab_size=shape.vocab_size,
            max_tokens=_least(shape.max_tokens, fields.integer("bert.context_length"), config.max_context),
            size=1 if scores else shape.hidden_size,
        )
        source = GgufSource(parts, bert.gguf_names(shape))
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
    device, dtype = torch.device(config.device), getattr(torch, config.float_dtype)
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
