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
from local_engine.models.mmproj import gguf_names, gguf_tower, projector_type
from local_engine.models.registry import ARCHITECTURES

__all__ = ["TowerFile"]


class TowerFile:
    """An open file, whose projector is of a type that is known. Raises ModelLoadError."""

    def __init__(self, path: Path) -> None:
        self._file = GgufFile(path)
        try:
            self._fields = FieldReader(path, self._file.metadata)
            named = projector_type(self._fields)
            towers = {row.projector.type: row for row in ARCHITECTURES if row.projector is not None}
            if named not in towers:
                self._fields.refuse(f"projector type {named!r} is not supported; supported are {', '.join(towers)}")
            self._architecture = towers[named]
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
        own = self._architecture
        assert own.projector is not None
        if (own.gguf_name, own.gguf_experts) != (architecture.gguf_name, architecture.gguf_experts):
            wanted, found = (row.hf_names[0] for row in (own, architecture))
            self._fields.refuse(f"projector type {own.projector.type!r} goes with {wanted}, the model is {found}")
        vision = gguf_tower(self._fields, own.projector, decoder)
        if problem := vision.problem(shape.vocab_size):
            self._fields.refuse(problem)
        return replace(shape, vision=vision)

    def read(self, shape: ModelConfig, decoder: Weights) -> EncodeImage:
        """The tower, where the decoder's weights are and in their type. Raises ModelLoadError."""
        own = self._architecture
        assert shape.vision is not None
        assert own.projector is not None
        assert own.build_tower is not None
        tensor_shapes = {name: tensor.shape for name, tensor in self._file.tensors.items()}
        weights = decoder.of_file(GgufSource([self._file], gguf_names(shape.vision, own.projector, tensor_shapes)))
        encode_image = own.build_tower(shape, weights)
        weights.finish()
        return encode_image
