from pathlib import Path

import pytest

from gateway.cli import main
from gateway.cli.init import FIRST_RUN

ROOT = Path(__file__).parents[3]


def test_the_first_file_is_that_of_the_repository() -> None:
    lines = (ROOT / "run.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
    assert lines[0].startswith("# yaml-language-server: $schema=gateway/config/")
    assert FIRST_RUN.read_text(encoding="utf-8") == "".join(lines[2:])


def test_it_is_written_and_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert main(["check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "wrote run.yaml; start it with:  gateway --config run.yaml"
    assert lines[-1] == "run.yaml is valid"


def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("version: 1\n")
    assert main(["init", "--config", str(file)]) == 1
    assert capsys.readouterr().err == f"gateway: {file}: there is such a file already, and it stays as it is\n"
    assert file.read_text() == "version: 1\n"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "none" / "run.yaml"
    assert main(["init", "--config", str(file)]) == 1
    assert capsys.readouterr().err == f"gateway: {file}: cannot be written: No such file or directory\n"
