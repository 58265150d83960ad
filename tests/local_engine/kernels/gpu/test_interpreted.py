"""Runs the tests of `interpreted/` in a process in which Triton interprets its kernels on CPU tensors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ENVIRONMENT = {
    "TRITON_INTERPRET": "1",
    # Interpreted products are NumPy's. With the kernels for Haswell a row's bits depend on where it stands in a tile.
    "OPENBLAS_CORETYPE": "Nehalem",
}


@pytest.mark.timeout(300)
def test_the_engine_on_interpreted_kernels_answers_as_the_reference() -> None:
    tests = Path(__file__).with_name("interpreted")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(tests)]
    finished = subprocess.run(
        command, env=os.environ | _ENVIRONMENT, capture_output=True, text=True, timeout=290, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert " passed" in finished.stdout
