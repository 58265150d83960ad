"""The kernels of LoRA, as they are launched for adapters of small and of large ranks."""

from local_engine.kernels.triton.lora import MAX_RANK, lora_expand_kernel, lora_shrink_kernel
from tests.local_engine.kernels.triton.compiled_case import Case

__all__ = ["LORA_CASES"]

_SHRINK, _EXPAND = ["*i32", "*i32", "*fp32", "i32", "i32"], ["*i32", "*i32", "*bf16", "i32", "i32"]

LORA_CASES = (
    Case("lora_shrink", lora_shrink_kernel, ["*bf16", "*bf16", *_SHRINK],
         {"splits": 8, "rank": 16, "block_rows": 16, "block_inputs": 128}),
    Case("lora_shrink, widest", lora_shrink_kernel, ["*bf16", "*bf16", *_SHRINK],
         {"splits": 1, "rank": MAX_RANK, "block_rows": 64, "block_inputs": 32}, 8),
    Case("lora_shrink, wide", lora_shrink_kernel, ["*bf16", "*bf16", *_SHRINK],
         {"splits": 8, "rank": 128, "block_rows": 64, "block_inputs": 32}),
    Case("lora_shrink, whole tiles", lora_shrink_kernel, ["*bf16", "*bf16", *_SHRINK],
         {"splits": 8, "rank": 64, "block_rows": 64, "block_inputs": 128}),
    Case("lora_expand", lora_expand_kernel, ["*fp32", "*bf16", *_EXPAND],
         {"splits": 8, "rank": 16, "block_rows": 16, "block_outputs": 128}),
    Case("lora_expand, widest", lora_expand_kernel, ["*fp32", "*bf16", *_EXPAND],
         {"splits": 1, "rank": MAX_RANK, "block_rows": 64, "block_outputs": 32}, 8),
)  # fmt: skip
