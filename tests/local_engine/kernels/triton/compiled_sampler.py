"""The sampler's kernels as they are launched for a vocabulary of 152,000."""

from local_engine.kernels.triton.draw_tokens import (
    cut_kernel,
    gather_kernel,
    pick_kernel,
    weigh_kept_kernel,
    weigh_kernel,
)
from local_engine.kernels.triton.shape_logits import PART, shape_logits_kernel
from local_engine.kernels.triton.top_logprobs import top_logprobs_kernel
from tests.local_engine.kernels.triton.compiled_case import Case

__all__ = ["SAMPLER_CASES"]

_PARTS = {"part_size": PART, "parts": 128}
_FLOATS = ["*fp32"] * 4
_RULES = ["*i64", "*i32", "*i32", "*i32", "*i32", "*fp32"]
_TOP = ["*i32", "*fp32", "*fp32", "*i32", "i32", "i32"]

SAMPLER_CASES = (
    Case("shape_logits", shape_logits_kernel, ["*bf16", *_RULES, *_FLOATS, "*i32", "i32", "i32", "i32"],
         {"part_size": PART}, 8),
    Case("weigh", weigh_kernel, ["*i64", "*fp32", "*fp32", "*i32", "*fp64", "*fp64", "i32", "i32"],
         _PARTS | {"depths": 8}, 8),
    Case("gather", gather_kernel, ["*i64", "*fp32", "*i32", "*fp64", "*fp64", "*i32", "i32", "i32", "i32"],
         _PARTS | {"depths": 8}, 8),
    Case("cut", cut_kernel, ["*i64", "*fp32", "*fp64", "*i32", "*fp32", "i32", "i32", "i32"],
         {"parts": 128, "tile": 2048}, 16),
    Case("weigh_kept", weigh_kept_kernel, ["*i64", "*fp32", "*fp32", "*fp64", "i32", "i32"], {"part_size": PART}, 8),
    Case("pick", pick_kernel,
         ["*bf16", "*i64", *_FLOATS, "*i32", "*fp32", "*fp64", "*i32", "*i64", "*i32", "*fp32", "*fp32", *["i32"] * 3],
         _PARTS | {"has_histories": True}, 8),
    Case("top_logprobs", top_logprobs_kernel, ["*bf16", *_TOP],
         {"has_ids": False, "has_totals": False, "part_size": PART}, 8),
    Case("top_logprobs, last round", top_logprobs_kernel, ["*fp32", *_TOP],
         {"has_ids": True, "has_totals": True, "part_size": PART}, 8),
)  # fmt: skip
