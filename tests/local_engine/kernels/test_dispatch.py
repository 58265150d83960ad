"""Which kernels a device gets, and how that is told."""

import pytest
import torch

from local_engine.kernels.dispatch import DeviceFacts, choose_kernels, device_facts, gpu_line, no_kernels
from local_engine.kernels.operations import Choice

pytest.importorskip("triton", reason="Triton is not installed: it has wheels for Linux only")

H200 = DeviceFacts("NVIDIA H200", 90, 132)


@pytest.mark.parametrize(
    ("arch", "kv_dtype", "reason"),
    [
        (75, "bfloat16", "they need compute capability 8.0, GPU has 7.5"),
        (80, "bfloat16", None),
        (80, "fp8", "kv_dtype fp8 needs compute capability 8.9, GPU has 8.0"),
        (89, "fp8", None),
        (None, "fp8", None),
    ],
)
def test_what_a_device_lacks_is_said(arch: int | None, kv_dtype: str, reason: str | None) -> None:
    assert no_kernels(DeviceFacts("GPU", arch), kv_dtype) == reason


def test_a_gpu_gets_triton_and_a_cpu_the_twins() -> None:
    on_gpu, on_cpu = choose_kernels(H200), choose_kernels(device_facts(torch.device("cpu")))
    assert Choice("paged_decode", "triton") in on_gpu.choices
    assert {choice.implementation for choice in on_cpu.choices} == {"torch"}
    assert on_gpu.paged_decode is not on_cpu.paged_decode
    assert on_gpu.add_rms_norm is not on_cpu.add_rms_norm


def test_the_line_names_the_device_and_each_operation_once() -> None:
    line = gpu_line(H200, choose_kernels(H200).choices)
    assert line.startswith("NVIDIA H200 (sm_90): triton: add_rms_norm, ")
    assert line.endswith(", selected_logits, sampling; torch: dense matmul")


def test_devices_that_run_kernels_alike_share_what_was_measured() -> None:
    assert H200.tuning_key == "NVIDIA H200 sm_90 x132"
    assert DeviceFacts("NVIDIA H200", 90, 66).tuning_key != H200.tuning_key
