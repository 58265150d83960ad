"""The kernels that multiply, unpack and gather weights in few bits, as they are launched for an 8B shape."""

from local_engine.kernels.triton.add_rms_norm import MAX_HIDDEN_SIZE, add_rms_norm_kernel, num_warps
from local_engine.kernels.triton.dequantize import dequantize_kernel
from local_engine.kernels.triton.embedding import embedding_kernel, quantized_embedding_kernel
from local_engine.kernels.triton.quantized_matmul import quantized_matmul_kernel, sum_parts_kernel
from local_engine.kernels.triton.scaled_matmul import scaled_matmul_kernel
from tests.local_engine.kernels.triton.compiled_case import Case

__all__ = ["MATMUL_CASES"]

_FORM = {"slab": 16, "super_group": 256, "zero": 0, "high_bits": 0, "is_float": False, "has_factors": False}
_PLAIN = _FORM | {"has_zeros": False, "has_minima": False}
_Q4_K = _PLAIN | {"bits": 4, "group_size": 32, "has_factors": True, "has_minima": True}
_Q6_K = _PLAIN | {"bits": 4, "high_bits": 2, "zero": 32, "group_size": 16, "has_factors": True}
_FP8 = _PLAIN | {"bits": 8, "group_size": 128, "is_float": True}
# low, high, scales, their factors, zeros, minima and their factors.
_K_TENSORS = ["*i32", "*i16", "*u8", "*fp16", "*i32", "*u8", "*fp16"]
_Q6_TENSORS = ["*i32", "*i16", "*i8", "*fp16", "*i32", "*i8", "*fp16"]
_FP8_TENSORS = ["*i32", "*i32", "*fp32", "*fp32", "*i32", "*fp32", "*fp32"]
_SIZES = ["i32"] * 4
_LAUNCH = {"has_bias": False, "is_whole": True, "splits": 8, "columns": 128}
_NORM_8_BITS = ["*bf16", "*bf16", "*bf16", "*bf16", "*i8", "*fp32", "i32", "fp32", "fp32"]
_SCALED = {"has_bias": False, "row_tiles": 8, "rows": 64, "columns": 128, "depth": 64}

MATMUL_CASES = (
    Case("quantized_matmul, Q4_K, 32 rows", quantized_matmul_kernel, ["*bf16", *_K_TENSORS, "*bf16", "*fp32", *_SIZES],
         _Q4_K | _LAUNCH | {"rows": 32}),
    Case("quantized_matmul, Q6_K", quantized_matmul_kernel, ["*bf16", *_Q6_TENSORS, "*bf16", "*fp32", *_SIZES],
         _Q6_K | _LAUNCH | {"rows": 16}, archs=(90,)),
    Case("quantized_matmul, fp8", quantized_matmul_kernel, ["*bf16", *_FP8_TENSORS, "*bf16", "*bf16", *_SIZES],
         _FP8 | _LAUNCH | {"rows": 32, "splits": 1, "has_bias": True, "is_whole": False}),
    Case("quantized_matmul, Q4_K, float32", quantized_matmul_kernel,
         ["*fp32", *_K_TENSORS, "*fp32", "*fp32", *_SIZES], _Q4_K | _LAUNCH | {"rows": 16, "columns": 64},
         archs=(80,)),
    Case("sum_parts", sum_parts_kernel, ["*fp32", "*bf16", "*bf16", "i32"],
         {"splits": 32, "has_bias": True, "block": 512}),
    Case("dequantize, Q6_K", dequantize_kernel, [*_Q6_TENSORS, "*bf16", *_SIZES, "i32"], _Q6_K | {"columns": 128}),
    Case("embedding", embedding_kernel, ["*bf16", "*i64", "*bf16", "i32", "i32", "i32", "fp32"], {"block": 1024}),
    Case("quantized_embedding, Q6_K", quantized_embedding_kernel,
         ["*i64", *_Q6_TENSORS, "*bf16", "i32", "i32", "i32", "i32", "fp32", "i32"], _Q6_K | {"block": 256}),
    Case("scaled_matmul, int8", scaled_matmul_kernel,
         ["*i8", "*fp32", "*i8", "*fp32", "*bf16", "*bf16", "i32", "i32", "i32"], _SCALED),
    Case("scaled_matmul, fp8", scaled_matmul_kernel,
         ["*fp8e4nv", "*fp32", "*fp8e4nv", "*fp32", "*bf16", "*bf16", "i32", "i32", "i32"], _SCALED, least_arch=90),
    Case("add_rms_norm, int8, widest", add_rms_norm_kernel, _NORM_8_BITS,
         {"has_inner": True, "largest": 127.0, "rounded": True, "block": MAX_HIDDEN_SIZE}, num_warps(MAX_HIDDEN_SIZE)),
)  # fmt: skip
