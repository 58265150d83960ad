"""The kernels of a layer of experts, as they are launched for Qwen3-MoE's shape: 128 experts, 8 a token."""

from local_engine.kernels.triton.combine_experts import combine_experts_kernel
from local_engine.kernels.triton.grouped_matmul import grouped_matmul_kernel
from local_engine.kernels.triton.route_experts import route_experts_kernel
from local_engine.kernels.triton.row_groups import count_rows_kernel, group_rows_kernel
from tests.local_engine.kernels.triton.compiled_case import Case

__all__ = ["EXPERTS_CASES"]

_PRODUCT = ["*i32", "*i32", "*bf16", "i32", "i32", "i32"]
_SHARE = {"share": 8, "has_bias": True}

EXPERTS_CASES = (
    Case("route_experts", route_experts_kernel, ["*bf16", "*i32", "*fp32", "i32", "i32"],
         {"per_token": 8, "normalised": True, "rows": 8, "slots": 8, "block": 128}),
    Case("count_rows", count_rows_kernel, ["*i32", "*i32", "i32"], {"tile": 1024}),
    Case("group_rows", group_rows_kernel, ["*i32"] * 4 + ["i32"] * 3,
         {"block_size": 16, "all_owners": 128, "tile": 1024}),
    Case("grouped_matmul", grouped_matmul_kernel, ["*bf16"] * 3 + _PRODUCT,
         _SHARE | {"block_rows": 16, "block_outputs": 64, "block_inputs": 128}),
    Case("grouped_matmul, many rows", grouped_matmul_kernel, ["*bf16"] * 3 + _PRODUCT,
         _SHARE | {"block_rows": 64, "block_outputs": 128, "block_inputs": 64}, 8),
    Case("experts in float32", grouped_matmul_kernel,
         ["*fp32"] * 3 + ["*i32", "*i32", "*fp32", "i32", "i32", "i32"],
         _SHARE | {"block_rows": 16, "block_outputs": 32, "block_inputs": 32}),
    Case("combine_experts", combine_experts_kernel, ["*bf16", "*fp32", "*bf16", "i32"],
         {"per_token": 8, "block": 1024}),
)  # fmt: skip
