"""Weights in eight-bit floats (E4M3 or E5M2) with scales: of a tensor, of each row, or of each block of a grid.

The value is weight * scale. `weight_scale_inv` is the name of DeepSeek-V3's files and of transformers' `fp8`, and in
spite of it multiplies; `weight_scale` is that of compressed-tensors. Scales of activations and of a cache are left out:
nothing here computes in eight bits.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from local_engine.errors import ModelLoadError
from local_engine.layers.quantized_matrix import QuantizedMatrix
from local_engine.layers.share import WHOLE, Share
from local_engine.loading.plain_source import PIECE_ITEMS, HfName, StoredTensor
from local_engine.loading.repacked.fp8 import fp8_matrix
from local_engine.loading.safetensors import SafetensorsSource
from local_engine.loading.weights import StoredRows

__all__ = ["Fp8Packing"]

_TYPES = ("F8_E4M3", "F8_E5M2")
_SCALE_TYPES = ("F32", "BF16", "F16", "F8_E8M0")
_SCALES = ("_scale_inv", "_scale")
_UNUSED = (".input_scale", ".output_scale", ".activation_scale", ".k_scale", ".v_scale", ".q_scale")


@dataclass(frozen=True, slots=True)
class Fp8Packing:
    """Implements `Packing`. block: rows and columns of the grid that config.json names, if it names one."""

    block: tuple[int, int] | None = None

    def tensors(self, file: SafetensorsSource) -> dict[str, StoredTensor]:
        return {name: self._tensor(file, name) for name, kind in file.types.items() if kind in _TYPES}

    def stacked(self, file: SafetensorsSource, name: HfName) -> StoredTensor | None:
        return None

    def unused(self, name: str) -> bool:
        return name.endswith(_UNUSED)

    def stored_name(self, name: str) -> str:
        return name

    def _tensor(self, file: SafetensorsSource, name: str) -> StoredTensor:
        scale = next((name + ending for ending in _SCALES if name + ending in file.shapes), None)
        if scale is None:
            raise ModelLoadError(file.path, f"tensor {name + _SCALES[0]!r} or {name + _SCALES[1]!r} is missing")
        shape, grid = file.shapes[name], file.shapes[scale]
        if len(shape) != 2:
            raise ModelLoadError(file.path, f"tensor {name!r} has shape {list(shape)}, expected a matrix")
        if file.types[scale] not in _SCALE_TYPES:
            expected = ", ".join(_SCALE_TYPES)
            raise ModelLoadError(
                file.path, f"tensor {scale!r} is of type {file.types[scale]}, expected one of {expected}"
            )
        rows, columns = shape
        cells = {(): shape, (1,): shape, (1, 1): shape, (rows, 1): (1, columns), (rows,): (1, columns)}
        if self.block is not None:
            cells[-(-rows // self.block[0]), -(-columns // self.block[1])] = self.block
        if grid not in cells:
            raise ModelLoadError(
                file.path, f"tensor {scale!r} has shape {list(grid)}, expected one of {sorted(map(list, cells))}"
            )
        return _Fp8Tensor(file, (name, scale), cells[grid])


@dataclass(frozen=True, slots=True)
class _Fp8Tensor:
    """cell: rows and columns that share a scale."""

    file: SafetensorsSource
    parts: tuple[str, str]
    cell: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.file.shapes[self.parts[0]]

    @property
    def num_bytes(self) -> int:
        return sum(map(self.file.num_bytes, self.parts))

    def quantized(self, device: torch.device, share: Share = WHOLE) -> QuantizedMatrix | None:
        weight, scales = map(self.file.stored, self.parts)
        if weight.dtype != torch.float8_e4m3fn:
            return None
        (num_rows, num_columns), (height, width) = weight.shape, self.cell
        grid = scales.reshape(-(-num_rows // height), -(-num_columns // width))
        # A scale of all rows, or of all columns, is that of every part of them.
        rows = (0, height) if height < num_rows else None
        columns = (1, width) if width < num_columns else None
        try:
            grid = share.cut(grid, rows=rows, columns=columns).to(device)
            weight = share.cut(weight, rows=(0, 1), columns=(1, 1)).to(device)
            cell = None if grid.numel() == 1 else (min(height, weight.shape[0]), min(width, weight.shape[1]))
            return fp8_matrix(weight, grid, cell)
        except ValueError:  # cells that are narrower than the kernels' groups of inputs, or that the share cuts
            return None

    def stored_rows(self) -> StoredRows | None:
        return None

    def read_into(self, out: Tensor, share: Share = WHOLE) -> None:
        weight, scales = map(self.file.stored, self.parts)
        (num_rows, num_columns), (height, width) = weight.shape, self.cell
        table = torch.arange(256, dtype=torch.uint8).view(weight.dtype).to(out.device, torch.float32)
        grid = scales.to(out.device, torch.float32).reshape(-(-num_rows // height), -(-num_columns // width))
        if width < num_columns:
            grid = grid.repeat_interleave(width, 1)[:, :num_columns]
        most = max(1, PIECE_ITEMS // num_columns)
        # A piece lies in one row of cells, unless a cell is one row high: then each of its rows has its own scale.
        for first in range(0, num_rows, num_rows if height == 1 else height):
            end = num_rows if height == 1 else min(first + height, num_rows)
            for start in range(first, end, most):
                stop = min(start + most, end)
                if not share.meets(start, stop):
                    continue
                codes = weight[start:stop].view(torch.uint8).to(out.device, torch.int32)
                # A table is some ten times as fast as torch's own conversion on a CPU.
                values = table.index_select(0, codes.flatten()).view(codes.shape)
                scale = grid[start:stop] if height == 1 else grid[first // height]
                share.write(out, start, values.mul_(scale))
