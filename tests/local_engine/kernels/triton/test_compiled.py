"""Every kernel compiles for GPUs that are not here, keeps its numbers in registers, and fits in shared memory."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed: it has wheels for Linux only")

# Some 45 s of work, which a busy machine may take long to do.
pytestmark = pytest.mark.timeout(300)

# Bytes of shared memory of a block: what consumer GPUs have (sm_86, sm_89, sm_120), which is less than A100 and H100.
_SHARED_BYTES = 99 * 1024
_ARCHITECTURES = (80, 90, 100)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Sequence[dict[str, object]]:
    """What `compiled` says, in processes whose cache of compiled kernels is empty and where nothing is interpreted."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    found: list[dict[str, object]] = []
    with ThreadPoolExecutor(len(_ARCHITECTURES)) as pool:
        for finished in pool.map(lambda arch: _compiled(arch, environment), _ARCHITECTURES):
            assert finished.returncode == 0, finished.stderr
            found += json.loads(finished.stdout)
    return found


def _compiled(arch: int, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.local_engine.kernels.triton.compiled", str(arch)]
    return subprocess.run(
        command,
        cwd=Path(__file__).parents[4],
        env=environment,
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )


def test_every_kernel_becomes_machine_code_for_each_architecture(kernels: Sequence[dict[str, object]]) -> None:
    by_arch = {arch: {kernel["kernel"] for kernel in kernels if kernel["arch"] == arch} for arch in _ARCHITECTURES}
    # Specialisations of a kernel that is compiled for each in another one.
    assert by_arch[90] - by_arch[100] == {"quantized_matmul, Q6_K"}
    assert by_arch[80] - by_arch[100] == {"quantized_matmul, Q4_K, float32"}
    # An A100 has no fp8.
    assert by_arch[100] - by_arch[80] == {"rope_kv_write, fp8", "paged_decode, fp8", "scaled_matmul, fp8"}
    assert all(int(str(kernel["cubin_bytes"])) > 0 for kernel in kernels)


def test_no_register_spills_and_shared_memory_suffices(kernels: Sequence[dict[str, object]]) -> None:
    assert [kernel for kernel in kernels if kernel["spill_bytes"] != 0] == []
    assert [kernel for kernel in kernels if int(str(kernel["shared_bytes"])) > _SHARED_BYTES] == []


def test_weights_in_few_bits_go_through_the_tensor_cores_too(kernels: Sequence[dict[str, object]]) -> None:
    products = {kernel["kernel"]: kernel["has_mma"] for kernel in kernels if "matmul" in str(kernel["kernel"])}
    assert all(products.values()), products


def test_attention_of_16_bit_numbers_runs_on_the_tensor_cores(kernels: Sequence[dict[str, object]]) -> None:
    attention = [kernel for kernel in kernels if str(kernel["kernel"]).startswith("paged_")]
    without = {kernel["kernel"] for kernel in attention if not kernel["has_mma"]}
    assert without == {"paged_decode, float32", "paged_decode_combine"}
