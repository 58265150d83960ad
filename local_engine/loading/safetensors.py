"""Folders of safetensors files, as transformers saves them: one file, or shards listed in an index."""

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from safetensors import SafetensorError, safe_open
from torch import Tensor

from local_engine.errors import ModelLoadError

__all__ = ["SafetensorsSource", "read_json"]

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


def read_json(path: Path) -> dict[str, object]:
    """A JSON object. Raises ModelLoadError when the file is missing or is not one."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelLoadError(path, error.strerror or "cannot be read") from error
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(path, f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelLoadError(path, f"holds {type(value).__name__}, expected an object")
    return value


class _Slice(Protocol):
    def get_dtype(self) -> str: ...
    def get_shape(self) -> list[int]: ...


class _Shard(Protocol):
    """What is used of safetensors' open file, which has no types."""

    def keys(self) -> list[str]: ...
    def get_tensor(self, name: str) -> Tensor: ...
    def get_slice(self, name: str) -> _Slice: ...


class SafetensorsSource:
    """A TensorSource over a model's folder; close it when the weights are read. Raises ModelLoadError."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._files: dict[str, Path] = {}
        self._open: dict[Path, _Shard] = {}
        self._stack = ExitStack()
        shapes: dict[str, tuple[int, ...]] = {}
        self._num_bytes: dict[str, int] = {}
        try:
            for file, names in _listing(folder).items():
                opened = self._enter(file)
                for name in opened.keys() if names is None else names:
                    shapes[name] = self._describe(file, name)
        except BaseException:
            self.close()
            raise
        self.shapes: Mapping[str, tuple[int, ...]] = shapes

    def close(self) -> None:
        self._stack.close()

    def num_bytes(self, name: str) -> int:
        return self._num_bytes[name]

    def read_into(self, name: str, out: Tensor) -> None:
        file = self._files[name]
        try:
            out.copy_(self._open[file].get_tensor(name))
        except SafetensorError as error:
            raise ModelLoadError(file, f"tensor {name!r}: {error}") from error

    def _enter(self, file: Path) -> _Shard:
        try:
            # The file is mapped, after its header was held against its size.
            self._open[file] = self._stack.enter_context(safe_open(file, framework="pt"))
        except (OSError, SafetensorError) as error:
            raise ModelLoadError(file, f"not a whole safetensors file: {error}") from error
        return self._open[file]

    def _describe(self, file: Path, name: str) -> tuple[int, ...]:
        try:
            part = self._open[file].get_slice(name)
        except SafetensorError as error:
            raise ModelLoadError(file, f"tensor {name!r}: {error}") from error
        item_bytes = _ITEM_BYTES.get(part.get_dtype())
        if item_bytes is None:
            raise ModelLoadError(
                file, f"tensor {name!r} is of type {part.get_dtype()}, expected one of {', '.join(_ITEM_BYTES)}"
            )
        shape = tuple(part.get_shape())
        self._files[name] = file
        self._num_bytes[name] = math.prod(shape) * item_bytes
        return shape


def _listing(folder: Path) -> dict[Path, list[str] | None]:
    """The files to open with the tensors to take from each; None is all."""
    if (folder / _SINGLE).is_file():
        return {folder / _SINGLE: None}
    index = folder / _INDEX
    if not index.is_file():
        raise ModelLoadError(folder, f"holds neither {_SINGLE} nor {_INDEX}")
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise ModelLoadError(index, "weight_map is missing")
    files: dict[Path, list[str] | None] = {}
    for name, file_name in weight_map.items():
        if not isinstance(file_name, str) or Path(file_name).name != file_name or file_name in ("", ".", ".."):
            raise ModelLoadError(
                index, f"tensor {name!r} is in {file_name!r}, expected the name of a file beside the index"
            )
        names = files.setdefault(folder / file_name, [])
        if names is not None:
            names.append(name)
    return files
