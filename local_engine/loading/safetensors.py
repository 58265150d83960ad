"""Folders of safetensors files, as transformers saves them: one file, or shards listed in an index.

Gives tensors as they are stored, of any type; plain_source.py makes weights of them.
"""

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
_ITEM_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
_ITEM_BYTES |= dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "U8", "I8", "BOOL"), 1)


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
    """The open files of a model's folder; close it when the weights are read. Raises ModelLoadError.

    shapes, types: of every tensor; types are the format's own names, such as BF16. under: what the name of a tensor
    begins with here where the file leaves it out, as it does of a model that was saved without its head. prefixes: what
    names begin with in the file, and here; the first that fits counts. left_out: what names begin with that nobody
    asks for.
    """

    def __init__(
        self,
        folder: Path,
        *,
        under: str = "",
        prefixes: Mapping[str, str] | None = None,
        left_out: tuple[str, ...] = (),
    ) -> None:
        self.path = folder
        self._in_file: dict[str, str] = {}
        self._files: dict[str, Path] = {}
        self._open: dict[Path, _Shard] = {}
        self._stack = ExitStack()
        shapes: dict[str, tuple[int, ...]] = {}
        types: dict[str, str] = {}
        try:
            for file, names in _listing(folder).items():
                opened = self._enter(file)
                for stored in opened.keys() if names is None else names:
                    if stored.startswith(left_out):
                        continue
                    name = _renamed(stored if stored.startswith(under) else under + stored, prefixes or {})
                    self._in_file[name] = stored
                    shapes[name], types[name] = self._describe(file, name)
        except BaseException:
            self.close()
            raise
        self.shapes: Mapping[str, tuple[int, ...]] = shapes
        self.types: Mapping[str, str] = types

    def close(self) -> None:
        self._stack.close()

    def num_bytes(self, name: str) -> int:
        return math.prod(self.shapes[name]) * _ITEM_BYTES[self.types[name]]

    def stored(self, name: str) -> Tensor:
        """The tensor in its own type. It is a view of the mapped file: valid until `close`, never to be written."""
        file = self._files[name]
        try:
            return self._open[file].get_tensor(self._in_file[name])
        except SafetensorError as error:
            raise ModelLoadError(file, f"tensor {name!r}: {error}") from error

    def _enter(self, file: Path) -> _Shard:
        try:
            # The file is mapped, after its header was held against its size.
            self._open[file] = self._stack.enter_context(safe_open(file, framework="pt"))
        except (OSError, SafetensorError) as error:
            raise ModelLoadError(file, f"not a whole safetensors file: {error}") from error
        return self._open[file]

    def _describe(self, file: Path, name: str) -> tuple[tuple[int, ...], str]:
        try:
            part = self._open[file].get_slice(self._in_file[name])
        except SafetensorError as error:
            raise ModelLoadError(file, f"tensor {name!r}: {error}") from error
        kind = part.get_dtype()
        if kind not in _ITEM_BYTES:
            raise ModelLoadError(file, f"tensor {name!r} is of type {kind}, expected one of {', '.join(_ITEM_BYTES)}")
        self._files[name] = file
        return tuple(part.get_shape()), kind


def _renamed(name: str, prefixes: Mapping[str, str]) -> str:
    for theirs, ours in prefixes.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name


def _listing(folder: Path) -> dict[Path, list[str] | None]:
    """The files to open with the tensors to take from each; None is all."""
    if (folder / _SINGLE).is_file():
        return {folder / _SINGLE: None}
    index = folder / _INDEX
    if not index.is_file():
        others = sorted(folder.glob("*.safetensors"))
        if len(others) == 1:  # quantised models often have a name of their own
            return {others[0]: None}
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
