"""A GGUF file's tensors under our names, dequantised piece by piece. The arithmetic of blocks is the gguf package's."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from gguf.quants import dequantize
from torch import Tensor

from local_engine.errors import ModelLoadError
from local_engine.loading.gguf import GgufFile, GgufTensor
from local_engine.loading.weights import GgufName

__all__ = ["GgufSource"]

# Bytes of a tensor that are dequantised at once: their float32 form stays below about 64 MB.
_PIECE_BYTES = 8 << 20


class GgufSource:
    """A GgufFile as a TensorSource. `names` maps our names to the file's; unmapped tensors keep the file's name."""

    def __init__(self, file: GgufFile, names: Mapping[str, GgufName]) -> None:
        self._file = file
        self._stored = {
            ours: (file.tensors[theirs.name], theirs.interleaved_heads)
            for ours, theirs in names.items()
            if theirs.name in file.tensors
        }
        mapped = {tensor.name for tensor, _ in self._stored.values()}
        self._stored |= {name: (tensor, 0) for name, tensor in file.tensors.items() if name not in mapped}
        self.shapes: Mapping[str, tuple[int, ...]] = {name: tensor.shape for name, (tensor, _) in self._stored.items()}

    @property
    def path(self) -> Path:
        return self._file.path

    def num_bytes(self, name: str) -> int:
        return self._stored[name][0].num_bytes

    def read_into(self, name: str, out: Tensor) -> None:
        tensor, heads = self._stored[name]
        row = 0
        for raw in self._pieces(tensor, heads):
            try:
                values = dequantize(raw, tensor.type)
            except NotImplementedError as error:
                reason = f"tensor {tensor.name!r} is of type {tensor.type.name}, which cannot be read"
                raise ModelLoadError(self.path, reason) from error
            piece = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
            out[row : row + len(raw)].copy_(piece.view(len(raw), *out.shape[1:]))
            row += len(raw)

    def _pieces(self, tensor: GgufTensor, heads: int) -> Iterator[npt.NDArray[np.uint8]]:
        """The tensor's rows in order, in pieces small enough to dequantise."""
        num_rows = tensor.shape[0]
        step = max(1, _PIECE_BYTES * num_rows // tensor.num_bytes)
        if heads:
            if num_rows % (2 * heads):
                raise ModelLoadError(self.path, f"tensor {tensor.name!r} has {num_rows} rows for {heads} heads")
            raw = self._file.read(tensor)
            # Stored as (0, half), (1, half + 1), ... of each head; whole rows move, so blocks stay as they are.
            halves = raw.reshape(heads, num_rows // heads // 2, 2, -1).swapaxes(1, 2).reshape(raw.shape)
            yield from (halves[row : row + step] for row in range(0, num_rows, step))
        else:
            for row in range(0, num_rows, step):
                yield self._file.read(tensor, row, min(row + step, num_rows))
