"""MXFP4 (OCP Microscaling Formats 1.0): blocks of 32 four-bit floats that share a power of two, as gpt-oss has them.

`NAME_blocks` is [experts, outputs, inputs / 32, 16] bytes, the earlier number in a byte's lower half; `NAME_scales` is
[experts, outputs, inputs / 32] exponents, less 127. The plain NAME is [experts, inputs, outputs].
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.errors import ModelLoadError
from local_engine.layers.quantized_matrix import QuantizedMatrix
from local_engine.layers.share import WHOLE, Share
from local_engine.loading.plain_source import PIECE_ITEMS, HfName, StoredTensor
from local_engine.loading.safetensors import SafetensorsSource
from local_engine.loading.weights import PAIRED_MXFP4, StoredRows

__all__ = ["Mxfp4Packing"]

_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_BLOCK, _BLOCK_BYTES, _BIAS = 32, 16, 127


@dataclass(frozen=True, slots=True)
class Mxfp4Packing:
    """Implements `Packing`, for stacks of experts alone."""

    def tensors(self, file: SafetensorsSource) -> dict[str, StoredTensor]:
        return {}

    def stacked(self, file: SafetensorsSource, name: HfName) -> StoredTensor | None:
        blocks, scales = f"{name.name}_blocks", f"{name.name}_scales"
        if blocks not in file.shapes:
            return None
        if scales not in file.shapes:
            raise ModelLoadError(file.path, f"tensor {scales!r} is missing")
        shape = file.shapes[blocks]
        if len(shape) != 4 or shape[-1] != _BLOCK_BYTES or 0 in shape or file.types[blocks] != "U8":
            raise ModelLoadError(
                file.path,
                f"tensor {blocks!r} is {file.types[blocks]} of shape {list(shape)}, expected U8 [.., .., .., 16]",
            )
        if file.shapes[scales] != shape[:3] or file.types[scales] != "U8":
            raise ModelLoadError(
                file.path,
                f"tensor {scales!r} is {file.types[scales]} of shape {list(file.shapes[scales])}, "
                f"expected U8 {list(shape[:3])}",
            )
        return _Mxfp4Matrix(file, (blocks, scales), name) if name.expert < shape[0] else None

    def unused(self, name: str) -> bool:
        return False

    def stored_name(self, name: str) -> str:
        return name


@dataclass(frozen=True, slots=True)
class _Mxfp4Matrix:
    file: SafetensorsSource
    parts: tuple[str, str]
    at: HfName

    @property
    def shape(self) -> tuple[int, ...]:
        _, outputs, blocks, _ = self.file.shapes[self.parts[0]]
        return (len(range(self.at.start, outputs, self.at.step)), blocks * _BLOCK)

    @property
    def num_bytes(self) -> int:
        rows, inputs = self.shape
        return rows * inputs // _BLOCK * (_BLOCK_BYTES + 1)

    def _parts(self) -> tuple[Tensor, Tensor]:
        """[rows, blocks, 16] and [rows, blocks]."""
        rows = slice(self.at.start, None, self.at.step)
        blocks, scales = (self.file.stored(part)[self.at.expert, rows] for part in self.parts)
        return blocks, scales

    def read_into(self, out: Tensor, share: Share = WHOLE) -> None:
        blocks, scales = self._parts()
        pairs = _byte_pairs(out.device)
        step = max(1, PIECE_ITEMS // self.shape[1])
        for start in range(0, self.shape[0], step):
            piece = slice(start, min(start + step, self.shape[0]))
            if not share.meets(piece.start, piece.stop):
                continue
            values = F.embedding(blocks[piece].to(out.device).to(torch.int32), pairs)  # [rows, blocks, 16, 2]
            exponents = scales[piece].to(out.device).to(torch.int32) - _BIAS
            powers = torch.ldexp(torch.ones(exponents.shape, device=out.device), exponents)
            share.write(out, start, values.flatten(2).mul_(powers.unsqueeze(-1)).flatten(1))

    def quantized(self, device: torch.device, share: Share = WHOLE) -> QuantizedMatrix | None:
        return None  # of experts alone, which have kernels of their own

    def stored_rows(self) -> StoredRows | None:
        return StoredRows(PAIRED_MXFP4, "MXFP4", self._rows)

    def _rows(self) -> Iterator[npt.NDArray[np.uint8]]:
        blocks, scales = self._parts()
        yield torch.cat((scales.unsqueeze(-1), blocks), -1).flatten(1).numpy()


def _byte_pairs(device: torch.device) -> Tensor:
    """The two numbers of each byte: [256, 2]."""
    numbers = torch.tensor([*_MAGNITUDES, *(-magnitude for magnitude in _MAGNITUDES)], device=device)
    codes = torch.arange(256, device=device)
    return torch.stack((numbers[codes & 15], numbers[codes >> 4]), -1)
