"""What `gateway check` says of a GPU."""

from ctypes.util import find_library
from pathlib import Path

import pytest

from gateway.cli import main
from tests.gateway.cli.conftest import WriteConfig


@pytest.mark.skipif(find_library("cuda") is not None, reason="this machine has the driver of a GPU")
@pytest.mark.parametrize(("device", "told"), [("cuda", True), ("auto", False), ("cpu", False)])
def test_a_gpu_that_is_asked_for_and_is_not_there_is_told(
    device: str,
    told: bool,
    write_config: WriteConfig,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF" + bytes(2044))
    write_config(
        f"version: 1\nproviders: {{local: {{device: {device}, models: {{tiny: {{source: {tmp_path}/tiny.gguf}}}}}}}}\n"
    )
    assert main(["check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ("GPU kernels: no GPU is found, so device cuda cannot be used" in lines) == told
