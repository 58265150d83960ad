"""Compiles each kernel for GPUs that need not be there, and says what it takes of them.

`python -m tests.local_engine.kernels.triton.compiled 80 90` writes a JSON list of `CompiledKernel` to stdout. It must
be a process of its own: where Triton interprets, nothing compiles.
"""

import io
import json
import re
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from local_engine.kernels.triton.add_rms_norm import MAX_HIDDEN_SIZE, add_rms_norm_kernel, num_warps
from local_engine.kernels.triton.gated_activation import gated_activation_kernel
from local_engine.kernels.triton.paged_decode import paged_decode_combine_kernel, paged_decode_kernel
from local_engine.kernels.triton.paged_prefill import paged_prefill_kernel
from local_engine.kernels.triton.rope_kv_write import rope_kv_write_kernel
from tests.local_engine.kernels.triton.compiled_case import Case
from tests.local_engine.kernels.triton.compiled_experts import EXPERTS_CASES
from tests.local_engine.kernels.triton.compiled_lora import LORA_CASES
from tests.local_engine.kernels.triton.compiled_matmul import MATMUL_CASES
from tests.local_engine.kernels.triton.compiled_sampler import SAMPLER_CASES

__all__ = ["CompiledKernel", "compiled_kernels"]


@dataclass(frozen=True)
class CompiledKernel:
    """arch: 90 for sm_90. spill_bytes: stores and loads of registers that did not fit. has_mma: uses tensor cores."""

    kernel: str
    arch: int
    cubin_bytes: int
    shared_bytes: int
    registers: int
    spill_bytes: int
    has_mma: bool


_MULTIPLES_OF_16 = ("hidden_size", "width", "head_dim", "rotary_dim", "num_inputs", "num_outputs")
_NORM = ["*bf16"] * 6 + ["i32", "fp32", "fp32"]
_NORM_SHAPE = {"largest": 0.0, "rounded": False}
_ROPE = ["*bf16"] * 5 + ["*i64", "*bf16"]
_ROPE_SIZES = ["fp32", "i32", "i32", "i32", "i32"]
_DECODE_SIZES = ["*i32", "*i32", "*fp32", "*fp32", "*fp32", "fp32", "fp32", "i32", "i32", "i32", "i32"]
_ROPE_SHAPE = {"has_norm": True, "has_rope": True, "heads": 8, "block": 128}
_PREFILL_SIZES = ["*i32", "*i32", "*i32", "*bf16", "*bf16", "fp32", "fp32", "i32", "i32", "i32", "i32"]
_PREFILL_SHAPE = {"block_size": 16, "share": 4, "rows": 64, "columns": 128, "tile": 64}
_DECODE_SHAPE = {"block_size": 16, "splits": 8, "rows": 16}

_CASES = [
    Case(
        "add_rms_norm", add_rms_norm_kernel, _NORM, _NORM_SHAPE | {"has_inner": False, "block": 4096}, num_warps(4096)
    ),
    Case(
        "add_rms_norm, Gemma, widest",
        add_rms_norm_kernel,
        _NORM,
        _NORM_SHAPE | {"has_inner": True, "block": MAX_HIDDEN_SIZE},
        num_warps(MAX_HIDDEN_SIZE),
    ),
    *(
        Case(
            f"gated_activation, {activation}",
            gated_activation_kernel,
            ["*bf16", "*bf16", "i32", "fp32", "fp32"],
            {"activation": activation, "block": 1024},
        )
        for activation in ("silu", "gelu", "gelu_tanh", "clamped_swiglu")
    ),
    Case(
        "rope_kv_write",
        rope_kv_write_kernel,
        [*_ROPE, *["*bf16"] * 4, *_ROPE_SIZES],
        _ROPE_SHAPE | {"largest": 0.0, "rounded": False},
    ),
    Case(
        "rope_kv_write, int8",
        rope_kv_write_kernel,
        [*_ROPE, "*i8", "*i8", "*fp32", "*fp32", *_ROPE_SIZES],
        _ROPE_SHAPE | {"largest": 127.0, "rounded": True},
    ),
    Case(
        "rope_kv_write, fp8",
        rope_kv_write_kernel,
        [*_ROPE, "*fp8e4nv", "*fp8e4nv", "*fp32", "*fp32", *_ROPE_SIZES],
        _ROPE_SHAPE | {"largest": 448.0, "rounded": False},
        least_arch=90,
    ),
    Case(
        "paged_decode",
        paged_decode_kernel,
        ["*bf16"] * 3 + ["*fp32"] * 2 + _DECODE_SIZES,
        _DECODE_SHAPE | {"share": 4, "has_cap": False, "has_scales": False, "columns": 128, "tile": 64},
        stages=2,
    ),
    Case(
        "paged_decode, float32",
        paged_decode_kernel,
        ["*fp32"] * 5 + _DECODE_SIZES,
        _DECODE_SHAPE | {"share": 4, "has_cap": False, "has_scales": False, "columns": 128, "tile": 32},
        stages=2,
    ),
    Case(
        "paged_decode, heads of 256, soft cap, int8",
        paged_decode_kernel,
        ["*bf16", "*i8", "*i8", "*fp32", "*fp32", *_DECODE_SIZES],
        _DECODE_SHAPE | {"share": 2, "has_cap": True, "has_scales": True, "columns": 256, "tile": 32},
        stages=2,
    ),
    Case(
        "paged_decode, fp8",
        paged_decode_kernel,
        ["*bf16", "*fp8e4nv", "*fp8e4nv", "*fp32", "*fp32", *_DECODE_SIZES],
        _DECODE_SHAPE | {"share": 4, "has_cap": False, "has_scales": True, "columns": 128, "tile": 64},
        least_arch=90,
        stages=2,
    ),
    Case(
        "paged_decode_combine",
        paged_decode_combine_kernel,
        ["*fp32", "*fp32", "*fp32", "*bf16", "*bf16", "i32"],
        {"splits": 64, "has_sinks": True, "ranges": 64, "columns": 128},
    ),
    Case(
        "paged_prefill",
        paged_prefill_kernel,
        ["*bf16"] * 3 + ["*fp32"] * 2 + _PREFILL_SIZES,
        _PREFILL_SHAPE | {"has_cap": False, "has_scales": False, "has_sinks": False},
        warps=8,
        stages=2,
    ),
    Case(
        "paged_prefill, heads of 256, soft cap, sinks, int8",
        paged_prefill_kernel,
        ["*bf16", "*i8", "*i8", "*fp32", "*fp32", *_PREFILL_SIZES],
        _PREFILL_SHAPE
        | {"has_cap": True, "has_scales": True, "has_sinks": True, "rows": 32, "columns": 256, "tile": 32},
        warps=8,
        stages=2,
    ),
    *EXPERTS_CASES,
    *LORA_CASES,
    *SAMPLER_CASES,
    *MATMUL_CASES,
]


def compiled_kernels(arch: int) -> list[CompiledKernel]:
    """All cases that the architecture has the types for."""
    return [_compiled(case, arch) for case in _CASES if arch >= case.least_arch and arch in case.archs]


def _compiled(case: Case, arch: int) -> CompiledKernel:
    arguments = [name for name in case.kernel.arg_names if name not in case.constants]
    signature = dict(zip(arguments, case.types, strict=True)) | dict.fromkeys(case.constants, "constexpr")
    # As at run time: torch's tensors are aligned to 16 bytes, and Triton asks of integers whether 16 divides them.
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(case.kernel.arg_names)
        if signature[name].startswith("*") or name in _MULTIPLES_OF_16
    }
    log = io.StringIO()
    with redirect_stdout(log):
        compiled = triton.compile(
            ASTSource(fn=case.kernel, signature=signature, constexprs=dict(case.constants), attrs=aligned),
            target=GPUTarget("cuda", arch, 32),
            options={"num_warps": case.warps, "num_stages": case.stages, "enable_fp_fusion": True},
        )
    stack = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log.getvalue())
    used = re.search(r"Used (\d+) registers", log.getvalue())
    if stack is None or used is None:
        raise RuntimeError(f"{case.name}: ptxas says nothing of registers:\n{log.getvalue()}")
    return CompiledKernel(
        kernel=case.name,
        arch=arch,
        cubin_bytes=len(compiled.asm["cubin"]),
        shared_bytes=compiled.metadata.shared,
        registers=int(used[1]),
        spill_bytes=int(stack[1]) + int(stack[2]),
        has_mma="mma" in compiled.asm["ptx"],
    )


if __name__ == "__main__":
    triton.knobs.compilation.always_compile = True  # what is taken from the cache has no log
    triton.knobs.nvidia.dump_ptxas_log = True
    print(json.dumps([asdict(kernel) for name in sys.argv[1:] for kernel in compiled_kernels(int(name))]))
