"""The matrices of a fused decoder as linear layers: dense for torch, or in few bits for `quantized_matmul`.

Owns which of both a tensor becomes. Knows no layers and no files but by `Weights`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from local_engine.kernels.operations import Kernels, StackedExperts
from local_engine.layer_config import ExpertsConfig
from local_engine.layers.linear import DenseLinear, Linear
from local_engine.layers.quantized_matrix import QuantizedMatrix, beside_each_other
from local_engine.layers.tiled_linear import TiledLinear
from local_engine.loading.repacked.rounded import rounded_matrix
from local_engine.loading.weights import Weights
from local_engine.models.sparse_mlp import ExpertNames

__all__ = ["FusedExperts", "Matrices", "QuantizedLinear", "Rounding", "splits_of"]

Rounding = Literal["none", "int8", "int4"]
"""What matrices of floats become when they are loaded."""

# Inputs that share a scale, by bits.
_GROUP_SIZES = {4: 32, 8: 64}
# Rows of a block of one expert, where a row's bits must be its own.
_FIXED_BLOCK = 16


@dataclass(frozen=True, slots=True)
class FusedExperts:
    """The experts of a layer. Implements `Linear`. block_size: see `sparse_experts`."""

    kernels: Kernels
    router: Linear
    stacked: StackedExperts
    per_token: int
    normalised: bool
    block_size: int | None

    def __call__(self, x: Tensor) -> Tensor:
        return self.kernels.sparse_experts(
            x,
            self.router(x),
            self.stacked,
            per_token=self.per_token,
            normalised=self.normalised,
            block_size=self.block_size,
        )


@dataclass(frozen=True, slots=True)
class QuantizedLinear:
    """Implements `Linear` over matrices in few bits, their outputs one after the other. processors: of the device."""

    matrices: tuple[QuantizedMatrix, ...]
    bias: Tensor | None
    kernels: Kernels
    processors: int

    def __call__(self, x: Tensor) -> Tensor:
        outputs = []
        first = 0
        for matrix in self.matrices:
            stop = first + matrix.num_outputs
            bias = None if self.bias is None else self.bias[first:stop]
            splits = splits_of(self.kernels, len(x), matrix, self.processors)
            outputs.append(self.kernels.quantized_matmul(x, matrix, bias=bias, splits=splits))
            first = stop
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)


def splits_of(kernels: Kernels, num_rows: int, matrix: QuantizedMatrix, processors: int) -> int:
    """Ranges of inputs, a power of two: each number is a kernel, compiled when it is first met."""
    wanted = kernels.matmul_splits(num_rows, matrix.num_outputs, matrix.num_inputs, processors)
    return 1 << wanted.bit_length() - 1


@dataclass(frozen=True, slots=True)
class Matrices:
    """How a model's matrices are read. packed: those that the file has in few bits stay so.

    tiled: dense ones are multiplied in tiles of rows; see `TiledLinear`.
    """

    weights: Weights
    kernels: Kernels
    processors: int = 1
    packed: bool = True
    rounding: Rounding = "none"
    tiled: bool = False

    def linear(self, parts: Mapping[str, int], inputs: int, *, bias: bool = False) -> Linear:
        """As `models.projection`: one layer over the tensors `parts`, name to output rows, that adapters may change."""
        rows = list(parts.values())
        names = [f"{name}.weight" for name in parts]
        linear: Linear
        matrices = self._quantized(names, rows, inputs)
        biases = self.weights.joined([f"{name}.bias" for name in parts], rows) if bias else None
        if matrices is not None:
            linear = QuantizedLinear(matrices, biases, self.kernels, self.processors)
        else:
            linear = self._dense(self.weights.stacked(names, rows, inputs), biases)
        return self.weights.summed(self.weights.lora_sites.adapt(linear, parts, inputs), parts)

    def experts(self, config: ExpertsConfig, layer: int, hidden: int, names: ExpertNames) -> Linear:
        """Those of one layer, unpacked: their kernels read stacks of floats."""
        names = names.of_layer(layer)
        count, width = config.count, config.intermediate_size
        experts = [f"{names.experts}.{index}" for index in range(count)]
        gate_up = [f"{expert}.{part}" for expert in experts for part in (names.gate, names.up)]
        down = [f"{expert}.{names.down}" for expert in experts]

        def stack(parts: list[str], rows: int, inputs: int) -> tuple[Tensor, Tensor | None]:
            sizes = [rows] * len(parts)
            weight = self.weights.stacked([f"{part}.weight" for part in parts], sizes, inputs).view(count, -1, inputs)
            if not config.bias:
                return weight, None
            return weight, self.weights.joined([f"{part}.bias" for part in parts], sizes).view(count, -1)

        gate_up_weight, gate_up_bias = stack(gate_up, width, hidden)
        down_weight, down_bias = stack(down, hidden, width)
        router = self.weights.stacked([f"{names.router}.weight"], [count], hidden)
        router_bias = self.weights.joined([f"{names.router}.bias"], [count]) if config.bias else None
        whole = FusedExperts(
            kernels=self.kernels,
            router=TiledLinear(router, router_bias) if self.tiled else DenseLinear(router, router_bias),
            stacked=StackedExperts(
                gate_up_weight,
                down_weight,
                activation=config.activation,
                gate_up_bias=gate_up_bias,
                down_bias=down_bias,
                alpha=config.swiglu_alpha,
                limit=config.swiglu_limit,
            ),
            per_token=config.per_token,
            normalised=config.normalised,
            block_size=_FIXED_BLOCK if self.tiled else None,
        )
        return self.weights.summed(whole, down)

    def embedding(self, name: str, rows: int, inputs: int) -> Tensor | QuantizedMatrix:
        """A row a token."""
        matrices = self._quantized([name], [rows], inputs)
        if matrices is not None and matrices[0].order is None:
            return matrices[0]
        return self.weights.stacked([name], [rows], inputs)

    def head(self, name: str, rows: int, inputs: int) -> Tensor | QuantizedMatrix:
        """A row a token too. See `rounded_head` for one that is the embedding."""
        matrices = self._quantized([name], [rows], inputs)
        return self.rounded_head(self.weights.stacked([name], [rows], inputs) if matrices is None else matrices[0])

    def rounded_head(self, matrix: Tensor | QuantizedMatrix) -> Tensor | QuantizedMatrix:
        """Where matrices of floats are rounded, this one keeps 8 bits: its errors are those of the logits."""
        if isinstance(matrix, QuantizedMatrix) or self.rounding == "none":
            return matrix
        return rounded_matrix(matrix, bits=8, group_size=_GROUP_SIZES[8])

    def _dense(self, weight: Tensor, bias: Tensor | None) -> Linear:
        if self.rounding == "none":
            return TiledLinear(weight, bias) if self.tiled else DenseLinear(weight, bias)
        bits = 8 if self.rounding == "int8" else 4
        matrix = rounded_matrix(weight, bits=bits, group_size=_GROUP_SIZES[bits])
        return QuantizedLinear((matrix,), bias, self.kernels, self.processors)

    def _quantized(self, names: Sequence[str], rows: Sequence[int], inputs: int) -> tuple[QuantizedMatrix, ...] | None:
        """The tensors in few bits, as one matrix where their forms are the same; None if one of them is not."""
        if not self.packed:
            return None
        matrices = []
        for name, count in zip(names, rows, strict=True):
            matrix = self.weights.quantized(name, (count, inputs))
            if matrix is None:
                return None
            matrices.append(matrix)
        for name in names:
            self.weights.mark_read(name)
        try:
            return (beside_each_other(matrices),)
        except ValueError:  # of different types, as where a file keeps V finer than Q and K
            return tuple(matrices)
