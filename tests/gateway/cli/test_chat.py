import asyncio
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from gateway.cli import main
from gateway.cli.chat import Conversation, talk
from gateway.cli.configuration import Endpoint, endpoint_at
from providers.testing.scripted import ScriptedProvider
from tests.gateway.cli.conftest import FakeGateway, WriteConfig
from tests.gateway.server.running import HELLO, running

ROOT = Path(__file__).parents[3]


@pytest.fixture
def client(fake_gateway: FakeGateway) -> Iterator[OpenAI]:
    with OpenAI(base_url=fake_gateway.url, api_key="k", max_retries=0) as client:
        yield client


def reader(*lines: str | type[BaseException]) -> Callable[[str], str]:
    """Gives the lines in turn, raises the exceptions in turn, then is at its end."""
    left = iter(lines)

    def read_line(_: str) -> str:
        line = next(left, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read_line


def test_the_history_goes_with_each_prompt(client: OpenAI, fake_gateway: FakeGateway) -> None:
    written: list[str] = []
    talk(Conversation(client, "m"), reader("one", "  ", "two"), written.append)
    assert fake_gateway.bodies[0]["messages"] == [{"role": "user", "content": "one"}]
    assert fake_gateway.bodies[1]["messages"] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "Hello there"},
        {"role": "user", "content": "two"},
    ]
    assert len(fake_gateway.bodies) == 2
    assert written[1:4] == ["Hello", " there", "\n"]
    assert fake_gateway.bodies[0]["stream"] is True


def test_a_refusal_is_shown_and_is_part_of_the_history(client: OpenAI, fake_gateway: FakeGateway) -> None:
    fake_gateway.refuses = True
    written: list[str] = []
    talk(Conversation(client, "m"), reader("one", "two"), written.append)
    assert written[1:4] == ["Hello", " there", "\n"]
    messages = fake_gateway.bodies[1]["messages"]
    assert isinstance(messages, list)
    assert messages[1] == {"role": "assistant", "content": "Hello there"}


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_line_that_is_no_text_is_told_and_the_talk_goes_on(
    client: OpenAI, fake_gateway: FakeGateway, errors: str
) -> None:
    written: list[str] = []
    lines = iter((b"caf\xe9", "ol\N{LATIN SMALL LETTER E WITH ACUTE}".encode()))

    def read_line(_: str) -> str:
        line = next(lines, None)
        if line is None:
            raise EOFError
        return line.decode("utf-8", errors)

    talk(Conversation(client, "m"), read_line, written.append)
    assert written[1:3] == ["the prompt is not text in UTF-8\n", "Hello"]
    assert len(fake_gateway.bodies) == 1


def test_exit_ends_it(client: OpenAI, fake_gateway: FakeGateway) -> None:
    talk(Conversation(client, "m"), reader("/exit", "never"), lambda _: None)
    assert fake_gateway.bodies == []


def test_ctrl_c_at_the_prompt_goes_on(client: OpenAI, fake_gateway: FakeGateway) -> None:
    talk(Conversation(client, "m"), reader(KeyboardInterrupt, "one"), lambda _: None)
    assert len(fake_gateway.bodies) == 1


def test_ctrl_c_stops_the_answer_and_keeps_what_came(client: OpenAI, fake_gateway: FakeGateway) -> None:
    written: list[str] = []

    def write(text: str) -> None:
        written.append(text)
        if text == "Hello" and len(fake_gateway.bodies) == 1:
            raise KeyboardInterrupt

    talk(Conversation(client, "m"), reader("one", "two"), write)
    assert "\n(stopped)\n" in written
    messages = fake_gateway.bodies[1]["messages"]
    assert isinstance(messages, list)
    assert messages[1] == {"role": "assistant", "content": "Hello"}


def test_an_error_is_one_line_and_its_turn_is_forgotten(client: OpenAI, fake_gateway: FakeGateway) -> None:
    written: list[str] = []
    fake_gateway.error = {"message": "the model\n'm' does not exist", "type": "invalid_request_error"}

    def write(text: str) -> None:
        written.append(text)
        if "does not exist" in text:
            fake_gateway.error = None

    talk(Conversation(client, "m"), reader("one", "two"), write)
    assert fake_gateway.bodies[-1]["messages"] == [{"role": "user", "content": "two"}]
    assert written[1].count("\n") == 2


def test_a_piped_prompt_is_answered_and_nothing_else_is_printed(
    fake_gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Why?\nAnd how?\n"))
    monkeypatch.setenv("LLM_GATEWAY_API_KEY", "from-env")
    assert main(["chat", "m", "--url", fake_gateway.url]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("Hello there\n", "")
    assert fake_gateway.bodies[0]["model"] == "m"
    assert fake_gateway.bodies[0]["messages"] == [{"role": "user", "content": "Why?\nAnd how?"}]
    assert set(fake_gateway.keys) == {"Bearer from-env"}


def test_the_gateway_of_the_file_is_called_with_its_own_key(
    write_config: WriteConfig,
    fake_gateway: FakeGateway,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_config(f"version: 1\nserver: {{port: {fake_gateway.port}}}\nauth: {{keys: [{{id: a, secret: mine}}]}}\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("Why?"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert main(["chat", "m"]) == 0
    assert capsys.readouterr().out == "Hello there\n"
    assert fake_gateway.keys[-1] == "Bearer mine"


def test_a_key_of_the_environment_goes_before_one_of_the_file(
    write_config: WriteConfig, fake_gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(f"version: 1\nserver: {{port: {fake_gateway.port}}}\nauth: {{keys: [{{id: a, secret: mine}}]}}\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("Why?"))
    monkeypatch.setenv("LLM_GATEWAY_API_KEY", "from-env")
    assert main(["chat", "m"]) == 0
    assert fake_gateway.keys[-1] == "Bearer from-env"


def test_a_gateway_with_a_certificate_is_called_over_https(
    write_config: WriteConfig,
    https_gateway: FakeGateway,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_config(f"version: 1\nserver: {{port: {https_gateway.port}, tls: {{cert: cert.pem, key: key.pem}}}}\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("Why?"))
    assert main(["chat", "m"]) == 0
    assert capsys.readouterr().out == "Hello there\n"


def test_an_address_without_a_path_means_its_v1(
    fake_gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in ("http://h:1/", "http://h:1", "http://h:1/v1/"):
        assert endpoint_at(given).url == "http://h:1/v1"
    assert endpoint_at("http://h:1/other").url == "http://h:1/other"
    assert endpoint_at("unix:/a:b.sock") == Endpoint("http://localhost/v1", socket_file="/a:b.sock")
    assert endpoint_at("unix:/a.sock:/pre/v1") == Endpoint("http://localhost/pre/v1", socket_file="/a.sock")
    monkeypatch.setattr(sys, "stdin", io.StringIO("Why?"))
    assert main(["chat", "m", "--url", fake_gateway.url.removesuffix("/v1")]) == 0
    assert fake_gateway.paths == ["/v1/chat/completions"]
    assert capsys.readouterr().out == "Hello there\n"


@pytest.mark.parametrize(
    ("defaults", "options", "temperature"),
    [
        (None, [], None),  # a remote model, of which the gateway does not know
        ({}, [], 0.7),
        ({"top_k": 64.0}, [], 0.7),
        ({"temperature": 1.0}, [], None),
        ({}, ["--temperature", "0"], 0.0),
    ],
)
def test_a_local_model_whose_files_recommend_no_temperature_is_asked_at_a_moderate_one(
    fake_gateway: FakeGateway,
    monkeypatch: pytest.MonkeyPatch,
    defaults: dict[str, float] | None,
    options: list[str],
    temperature: float | None,
) -> None:
    fake_gateway.defaults = defaults
    monkeypatch.setattr(sys, "stdin", io.StringIO("Why?"))
    assert main(["chat", "m", "--url", fake_gateway.url, *options]) == 0
    assert fake_gateway.bodies[0].get("temperature") == temperature


def test_a_failed_answer_to_a_pipe_is_one_line_and_status_1(
    fake_gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_gateway.error = {"message": "no such\nmodel", "type": "invalid_request_error"}
    monkeypatch.setattr(sys, "stdin", io.StringIO("Why?"))
    assert main(["chat", "m", "--url", fake_gateway.url]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert "no such" in captured.err


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_pipe_that_is_no_text_is_one_line_and_status_1(
    fake_gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], errors: str
) -> None:
    piped = io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8", errors=errors)
    monkeypatch.setattr(sys, "stdin", piped)
    assert main(["chat", "m", "--url", fake_gateway.url]) == 1
    assert capsys.readouterr().err == "gateway: the prompt is not text in UTF-8\n"
    assert fake_gateway.bodies == []


def test_an_empty_pipe_is_one_line_and_status_1(
    fake_gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert main(["chat", "m", "--url", fake_gateway.url]) == 1
    assert capsys.readouterr().err == "gateway: no prompt on stdin\n"


def test_without_a_running_gateway_one_inside_this_process_answers(
    write_config: WriteConfig,
    fake_gateway: FakeGateway,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    upstream = f"{{type: openai-compatible, base_url: '{fake_gateway.url}', api_key: upstream-key}}"
    write_config(f"version: 1\nserver: {{port: 1}}\nproviders: {{up: {upstream}}}\nmodels: {{fast: up/m}}\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("Why?"))
    assert main(["chat", "fast"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("Hello there\n", "")
    assert fake_gateway.bodies[0]["model"] == "m"
    assert set(fake_gateway.keys) == {"Bearer upstream-key"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_in_a_terminal_it_prompts_answers_and_ends_with_ctrl_d(fake_gateway: FakeGateway) -> None:
    terminal, stdin = os.openpty()
    command = [sys.executable, "-m", "gateway", "chat", "m", "--url", fake_gateway.url]
    with subprocess.Popen(command, cwd=ROOT, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(stdin)
        os.write(terminal, b"Why?\n\x04")
        assert process.stdout
        assert process.stderr
        out, err = process.stdout.read().decode(), process.stderr.read().decode()
    os.close(terminal)
    assert (process.returncode, err) == (0, "")
    assert out == "Ctrl-C stops an answer, /exit or Ctrl-D ends.\n> Hello there\n> \n"


async def test_a_gateway_behind_a_socket_file_is_spoken_to(
    write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config("version: 1\nserver: {unix: ./gateway.sock}\nproviders: {openai: {}}\n")
    file = str(config.parent / "gateway.sock")
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        server = await asyncio.get_running_loop().create_unix_server(gateway.app.connections, file)
        for way in ([], ["--url", f"unix:{file}"]):
            monkeypatch.setattr(sys, "stdin", io.StringIO("Why?"))
            assert await asyncio.to_thread(main, ["chat", "fake/m", *way]) == 0
            assert capsys.readouterr() == ("Hello there\n", "")
        server.close()
