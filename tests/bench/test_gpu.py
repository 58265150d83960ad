"""The GPU bench without a GPU: all of its code runs, and the documents have the numbers that it predicts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(300)


def bench(*arguments: str) -> str:
    finished = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "gpu" / "measure.py"), *arguments],
        env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_a_dry_run_checks_and_times_everything_on_a_cpu(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: it has wheels for Linux only")
    shown = bench("--dry-run", "--json", str(tmp_path / "gpu.json"))
    assert "15 kernels held to their twins, 0 of them wrong" in shown
    found = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert found["device"] == "CPU, interpreted"
    assert len(found["checks"]) == len(found["kernels"]) == 15
    assert all(row["seconds"] > 0 for row in (*found["kernels"], *found["steps"]))
    assert {row["weights"] for row in found["steps"]} == {"bf16", "int4", "fp8"}
    assert {row["step"] for row in found["steps"]} == {"decode, 2 streams", "prefill, 5 tokens", "the same, eager, 2"}


def test_the_document_has_what_is_predicted() -> None:
    document = (ROOT / "docs" / "gpu-kernels.md").read_text(encoding="utf-8")
    assert bench("--predict").strip() in document
