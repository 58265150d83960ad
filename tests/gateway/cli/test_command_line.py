import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.version import VERSION
from tests.gateway.cli.conftest import WriteConfig

ROOT = Path(__file__).parents[3]
COMMANDS = ("serve", "init", "check", "models", "pull", "chat", "config")


def test_importing_the_command_line_brings_in_nothing_heavy() -> None:
    script = (
        "import sys, gateway.cli;"
        "heavy = {'torch', 'openai', 'sqlalchemy', 'aiohttp', 'pydantic', 'httpx', 'rich', 'yaml', 'msgspec'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gateway {VERSION}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert "Example: " in capsys.readouterr().out


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n    {command} " in shown for command in COMMANDS)


@pytest.mark.parametrize(
    "argv", [["nonsense"], ["--nonsense"], ["pull"], ["chat"], ["check", "run.yaml", "extra"], ["--conf", "x"]]
)
def test_wrong_use_is_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "usage: gateway" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["serve"], ["check"], ["models"], ["config"], ["chat", "m"]])
def test_without_a_file_each_command_fails_with_one_line(
    argv: list[str], write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 1
    assert capsys.readouterr().err == "gateway: run.yaml: there is no such file; 'gateway init' writes one\n"


@pytest.mark.parametrize(
    "argv", [["--config", "bad.yaml"], ["--config", "bad.yaml", "serve"], ["serve", "--config", "bad.yaml"]]
)
def test_no_command_is_serve_and_the_option_may_stand_on_either_side(
    argv: list[str], write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config("version: 1\nserver: {prot: 1}\n").rename("bad.yaml")
    assert main(argv) == 1
    assert capsys.readouterr().err == "gateway: bad.yaml:2: server.prot: unknown key 'prot', did you mean 'port'?\n"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_running_gateway_stops_cleanly_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("version: 1\nserver: {port: 0}\nproviders: {groq: {enabled: auto, api_key: '${NO_KEY}'}}\n")
    command = [sys.executable, "-m", "gateway", "--config", str(file)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        off, none, first = [process.stderr.readline() for _ in range(3)]
        process.send_signal(number)
        rest = process.stderr.read()
    assert off == "gateway: provider groq is off: the environment variable 'NO_KEY' is not set\n"
    assert none == "gateway: no provider is switched on, so no model can be called\n"
    assert "http://127.0.0.1:" in first
    assert process.returncode == 0
    assert "Traceback" not in rest


@pytest.mark.skipif(os.name != "posix", reason="POSIX pipes")
def test_a_reader_that_leaves_ends_the_command_without_a_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "gateway", "config", "--schema"]
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full device")
@pytest.mark.parametrize(("where", "expected"), [(">/dev/full", "gateway: No space left on device\n"), (">&-", "")])
def test_an_output_that_takes_nothing_ends_in_one_line(where: str, expected: str) -> None:
    command = f"{sys.executable} -m gateway config --schema {where}"
    done = subprocess.run(command, shell=True, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (int(bool(expected)), expected)


def test_what_is_no_address_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--model", "m", "localhost:8080"]) == 1
    told = "gateway: localhost:8080: expected an http:// or https:// address, or unix:FILE\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("number", ["-1", "nan", "inf"])
def test_a_benchmark_takes_some_seconds(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--model", "m", f"--seconds={number}"]) == 2
    assert f"--seconds: expected a number above 0, got '{number}'" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_numbers_of_a_benchmark_are_refused_by_what_is_expected(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--model", "m", f"--clients={number}"]) == 2
    assert f"--clients: expected a whole number above 0, got '{number}'" in capsys.readouterr().err
