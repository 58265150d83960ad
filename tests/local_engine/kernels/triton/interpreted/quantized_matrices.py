"""A small matrix of each form that files have."""

import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from local_engine.layers.quantized_matrix import GroupNumbers, QuantizedMatrix, packed_codes
from local_engine.loading.repacked.fp8 import fp8_matrix
from local_engine.loading.repacked.gguf import gguf_matrix
from local_engine.loading.repacked.rounded import rounded_matrix

__all__ = ["FORMS", "quantized_matrix"]

# Bytes of a block where its factors stand, which must be numbers.
_FACTORS = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
FORMS = (*_FACTORS, "zeros", "order", "2 bits", "int8", "int4", "fp8", "fp8 blocks")


def quantized_matrix(form: str, num_outputs: int, num_inputs: int) -> QuantizedMatrix:
    """[num_outputs, num_inputs]; a K type of GGUF takes the next multiple of 256 inputs."""
    generator = torch.Generator().manual_seed(2)
    normal = torch.randn(num_outputs, num_inputs, generator=generator)
    match form:
        case "int8":
            return rounded_matrix(normal, bits=8, group_size=None)
        case "int4":
            return rounded_matrix(normal, bits=4, group_size=64)
        case "fp8":
            scales = torch.rand(num_outputs, generator=generator)
            return fp8_matrix(normal.to(torch.float8_e4m3fn), scales, (1, num_inputs))
        case "fp8 blocks":
            scales = torch.rand(-(-num_outputs // 32), -(-num_inputs // 64), generator=generator)
            # Numbers down to the smallest that the type has.
            return fp8_matrix((normal / 2**9).to(torch.float8_e4m3fn), scales, (32, 64))
        case "zeros" | "order" | "2 bits":
            bits = 2 if form == "2 bits" else 4
            return _with_zeros(num_outputs, num_inputs, bits, generator, is_ordered=form != "order")
        case _:
            return _of_gguf(GGMLQuantizationType[form], num_outputs, num_inputs, generator)


def _with_zeros(
    num_outputs: int, num_inputs: int, bits: int, generator: torch.Generator, *, is_ordered: bool
) -> QuantizedMatrix:
    groups = -(-num_inputs // 128)
    codes, zeros = (
        torch.randint(0, 1 << bits, (rows, num_outputs), generator=generator, dtype=torch.uint8)
        for rows in (num_inputs, groups)
    )
    return QuantizedMatrix(
        packed_codes(codes, bits),
        GroupNumbers(torch.rand(groups, num_outputs, generator=generator).half()),
        num_inputs,
        bits,
        128,
        zeros=zeros,
        order=None if is_ordered else torch.randperm(num_inputs, generator=generator),
    )


def _of_gguf(
    kind: GGMLQuantizationType, num_outputs: int, num_inputs: int, generator: torch.Generator
) -> QuantizedMatrix:
    items, num_bytes = GGML_QUANT_SIZES[kind]
    shape = num_outputs, -(-num_inputs // items), num_bytes
    blocks = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    for at in _FACTORS[kind.name]:
        factors = torch.randn(*shape[:2], 1, generator=generator) / 64
        blocks[..., at : at + 2] = factors.half().view(torch.uint8)
    return gguf_matrix(blocks.flatten(1), kind)
