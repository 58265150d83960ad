import sys
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.cli.table import render_bytes
from tests.gateway.cli.conftest import WriteConfig


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and a package index that refuses connections at once."""
    monkeypatch.setenv("LLM_GATEWAY_CACHE", str(tmp_path / "cache"))
    for name in ("PIP_INDEX_URL", "HF_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_a_name_of_the_file_gives_the_path_of_its_model(
    write_config: WriteConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    write_config("version: 1\nproviders: {local: {models: {tiny: {source: ./x.gguf}}}}\n")
    assert main(["pull", "tiny"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'x.gguf'}\n"


def test_a_source_needs_no_file(write_config: WriteConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    assert main(["pull", str(tmp_path / "x.gguf")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'x.gguf'}\n"


def test_without_the_engines_extra_it_says_what_to_install(
    write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # which makes an import of it fail
    assert main(["pull", "smollm2-135m-instruct"]) == 1
    assert capsys.readouterr().err == "gateway: pull needs torch: pip install 'llm-protocol-gateway[local]'\n"


def test_an_unknown_name_is_one_clear_line(write_config: WriteConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "smollm"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("gateway: source 'smollm' is no file or folder")


def test_offline_is_one_clear_line(write_config: WriteConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "smollm2-135m-instruct"]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("gateway: ")]
    assert len(lines) == 1
    assert "Traceback" not in lines[0]


@pytest.mark.parametrize(
    ("size_bytes", "shown"), [(0, "0 B"), (1023, "1023 B"), (98_362_432, "94 MiB"), (5 * 2**30, "5.0 GiB")]
)
def test_sizes_are_shown_in_binary_units(size_bytes: int, shown: str) -> None:
    assert render_bytes(size_bytes) == shown
