"""What computes each operation of a fused decoder on a device: chosen once, when a model is loaded.

Owns which implementation needs which device, architecture and types, and how that is told in a line. Kernels are
imported when they are chosen: Triton is not everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from local_engine.kernels.operations import Choice, Kernels

__all__ = ["DeviceFacts", "choose_kernels", "device_facts", "gpu_line", "no_kernels"]

# sm_80: bfloat16 and asynchronous copies. fp8 as a type of the machine came with sm_89.
_LEAST_ARCH, _LEAST_FP8_ARCH = 80, 89
_TORCHS_OWN = (Choice("dense matmul", "torch"),)


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a choice depends on. arch: 90 for sm_90; None is no GPU. processors: its streaming multiprocessors."""

    name: str
    arch: int | None
    processors: int = 1

    @property
    def tuning_key(self) -> str:
        """Devices with this in common run a kernel alike."""
        return self.name if self.arch is None else f"{self.name} sm_{self.arch} x{self.processors}"


def device_facts(device: torch.device) -> DeviceFacts:
    """Those of a device that is there."""
    if device.type != "cuda":
        return DeviceFacts("CPU", None)
    properties = torch.cuda.get_device_properties(device)
    return DeviceFacts(properties.name, 10 * properties.major + properties.minor, properties.multi_processor_count)


def no_kernels(facts: DeviceFacts, kv_dtype: str) -> str | None:
    """Why the kernels do not run on a device, with keys and values kept so; None where they do."""
    if find_spec("triton") is None:
        return "the package triton is not installed"
    if facts.arch is not None and facts.arch < _LEAST_ARCH:
        return f"they need compute capability {_LEAST_ARCH / 10}, {facts.name} has {facts.arch / 10}"
    if facts.arch is not None and kv_dtype == "fp8" and facts.arch < _LEAST_FP8_ARCH:
        return f"kv_dtype fp8 needs compute capability {_LEAST_FP8_ARCH / 10}, {facts.name} has {facts.arch / 10}"
    return None


def choose_kernels(facts: DeviceFacts) -> Kernels:
    """The kernels for a device that `no_kernels` has nothing against.

    Without a GPU these are the twins in torch, unless Triton interprets: then they are what a GPU runs.
    """
    import triton

    if facts.arch is None and not triton.knobs.runtime.interpret:
        return _twins()
    return _triton()


def gpu_line(facts: DeviceFacts, choices: Sequence[Choice]) -> str:
    """What computes, in one line: operations by their implementation."""
    by_implementation: dict[str, list[str]] = {}
    for operation, implementation in choices:
        by_implementation.setdefault(implementation, []).append(operation)
    words = "; ".join(f"{name}: {', '.join(operations)}" for name, operations in by_implementation.items())
    return f"{facts.name}{'' if facts.arch is None else f' (sm_{facts.arch})'}: {words}"


def _triton() -> Kernels:
    from local_engine.kernels.triton.add_rms_norm import add_rms_norm
    from local_engine.kernels.triton.embedding import embedding, quantized_embedding
    from local_engine.kernels.triton.gated_activation import gated_activation
    from local_engine.kernels.triton.lora import add_lora
    from local_engine.kernels.triton.paged_decode import paged_decode
    from local_engine.kernels.triton.paged_prefill import paged_prefill
    from local_engine.kernels.triton.quantized_matmul import matmul_splits, quantized_matmul
    from local_engine.kernels.triton.rope_kv_write import rope_kv_write
    from local_engine.kernels.triton.row_groups import group_rows
    from local_engine.kernels.triton.selected_logits import selected_logits
    from local_engine.kernels.triton.sparse_experts import sparse_experts

    return Kernels(
        add_rms_norm=add_rms_norm,
        gated_activation=gated_activation,
        rope_kv_write=rope_kv_write,
        paged_decode=paged_decode,
        paged_prefill=paged_prefill,
        quantized_matmul=quantized_matmul,
        sparse_experts=sparse_experts,
        group_rows=group_rows,
        add_lora=add_lora,
        embedding=embedding,
        quantized_embedding=quantized_embedding,
        selected_logits=selected_logits,
        matmul_splits=matmul_splits,
        fused_sampler=True,
        choices=_choices("triton"),
    )


def _twins() -> Kernels:
    from local_engine.kernels.triton.add_rms_norm import add_rms_norm_twin
    from local_engine.kernels.triton.embedding import embedding_twin, quantized_embedding_twin
    from local_engine.kernels.triton.gated_activation import gated_activation_twin
    from local_engine.kernels.triton.lora import add_lora_twin
    from local_engine.kernels.triton.paged_decode import paged_decode_twin
    from local_engine.kernels.triton.paged_prefill import paged_prefill_twin
    from local_engine.kernels.triton.quantized_matmul import quantized_matmul_twin
    from local_engine.kernels.triton.rope_kv_write import rope_kv_write_twin
    from local_engine.kernels.triton.row_groups import group_rows_twin
    from local_engine.kernels.triton.selected_logits import selected_logits_twin
    from local_engine.kernels.triton.sparse_experts import sparse_experts_twin

    return Kernels(
        add_rms_norm=add_rms_norm_twin,
        gated_activation=gated_activation_twin,
        rope_kv_write=rope_kv_write_twin,
        paged_decode=paged_decode_twin,
        paged_prefill=paged_prefill_twin,
        quantized_matmul=quantized_matmul_twin,
        sparse_experts=sparse_experts_twin,
        group_rows=group_rows_twin,
        add_lora=add_lora_twin,
        embedding=embedding_twin,
        quantized_embedding=quantized_embedding_twin,
        selected_logits=selected_logits_twin,
        matmul_splits=lambda *_: 1,
        fused_sampler=False,
        choices=_choices("torch"),
    )


def _choices(implementation: str) -> tuple[Choice, ...]:
    fused = (
        "add_rms_norm",
        "gated_activation",
        "rope_kv_write",
        "paged_decode",
        "paged_prefill",
        "quantized_matmul",
        "sparse_experts",
        "add_lora",
        "embedding",
        "selected_logits",
        "sampling",
    )
    return (*(Choice(operation, implementation) for operation in fused), *_TORCHS_OWN)
