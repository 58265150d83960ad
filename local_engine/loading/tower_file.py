"""A tower in a GGUF of its own, as users of llama.cpp have it beside the decoder's (`mmproj`). As little trusted."""

from dataclasses import replace
from pathlib import Path
from types import TracebackType

from local_engine.config import ModelConfig
from local_engine.images import EncodeImage
from local_engine.loading.fields import FieldReader
from local_engine.loading.gguf import GgufFile
from local_engine.loading.gguf_source import GgufSource
from local_engine.loading.weights import Weights
from local_engine.models.architecture import Architecture
from local_engine.models.mmproj import projector_type
from local_engine.models.registry import ARCHITECTURES

__all__ = ["TowerFile"]


class TowerFile:
    """An open file, whose projector is of a type that is known. Raises ModelLoadError."""

    def __init__(self, path: Path) -> None:
        self._file = GgufFile(path)
        try:
            self._fields = FieldReader(path, self._file.metadata)
            named = projector_type(self._fields)
            known = {row.projector.type: row.projector for row in ARCHITECTURES if row.projector is not None}
            if named not in known:
                self._fields.refuse(f"projector type {named!r} is not supported; supported are {', '.join(known)}")
            self._projector = known[named]
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "TowerFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def with_vision(self, shape: ModelConfig, architecture: Architecture, decoder: FieldReader) -> ModelConfig:
        """The decoder's shape with the tower's. decoder: the fields of its file. Raises ModelLoadError."""
        rows = [row for row in ARCHITECTURES if row.projector == self._projector]
        decoders = [(row.gguf_name, row.gguf_experts) for row in rows]
        if (architecture.gguf_name, architecture.gguf_experts) not in decoders:
            wanted = ", ".join(name for row in rows for name in row.hf_names)
            found = ", ".join(architecture.hf_names) or architecture.gguf_name
            self._fields.refuse(f"projector type {self._projector.type!r} goes with {wanted}, the model is {found}")
        shape = replace(shape, vision=self._projector.tower(self._fields, decoder))
        if problem := shape.problem():
            self._fields.refuse(problem)
        return shape

    def read(self, shape: ModelConfig, decoder: Weights) -> EncodeImage:
        """The tower, where the decoder's weights are and in their type. Raises ModelLoadError."""
        assert shape.vision is not None
        (build, *_) = [row.build_tower for row in ARCHITECTURES if row.projector == self._projector]
        assert build is not None
        tensor_shapes = {name: tensor.shape for name, tensor in self._file.tensors.items()}
        weights = decoder.of_file(GgufSource([self._file], self._projector.names(shape.vision, tensor_shapes)))
        encode_image = build(shape, weights)
        weights.finish()
        return encode_image
