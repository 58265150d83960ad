from pathlib import Path

import pytest

from gateway.cli import main
from tests.certificates import certificate
from tests.gateway.cli.conftest import FakeGateway, WriteConfig

TEXT = """\
version: 1
server: {port: PORT}
providers: {openai: {}, local: {models: {tiny: {context: 512}}}}
models: {quick: openai/x}
"""


def test_a_running_gateway_is_asked_with_a_key_that_it_lets_in(
    write_config: WriteConfig, fake_gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = "auth: {keys: [{id: a, secret: narrow, models: [x]}, {id: b, secret: wide}]}\n"
    write_config(TEXT.replace("PORT", str(fake_gateway.port)) + keys)
    assert main(["models"]) == 0
    captured = capsys.readouterr()
    assert [line.split() for line in captured.out.splitlines()] == [
        ["Models"],
        ["name", "owner", "context", "takes", "$", "in/out"],
        ["fast", "gateway", "2048", "image,", "tools", "5", "/", "0.25"],
    ]
    assert captured.err == ""
    assert fake_gateway.keys == ["Bearer wide"]


def test_without_a_running_gateway_the_file_is_read(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(TEXT.replace("PORT", "1"))
    assert main(["models"]) == 0
    captured = capsys.readouterr()
    assert [line.split() for line in captured.out.splitlines()][2:] == [
        ["quick", "gateway"],
        ["local/tiny", "local", "512"],
    ]
    assert "no gateway answers at http://127.0.0.1:1/v1" in captured.err


def test_a_gateway_that_refuses_the_key_is_said_to(
    write_config: WriteConfig, fake_gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(TEXT.replace("PORT", str(fake_gateway.port)))
    fake_gateway.status, fake_gateway.error = 401, {"message": "no API key"}
    assert main(["models"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (
        captured.err
        == f"gateway: the gateway at {fake_gateway.url} refuses the key of this configuration: no API key\n"
    )


def test_a_gateway_with_a_certificate_is_asked_over_https_and_only_that_certificate_is_taken(
    write_config: WriteConfig, https_gateway: FakeGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TEXT.replace("PORT", f"{https_gateway.port}, tls: {{cert: cert.pem, key: key.pem}}")
    write_config(text)
    assert main(["models"]) == 0
    assert "2048" in capsys.readouterr().out
    (tmp_path / "other").mkdir()
    certificate(tmp_path / "other")
    write_config(text.replace("cert: cert.pem", "cert: other/cert.pem"))
    assert main(["models"]) == 0
    assert f"no gateway answers at {https_gateway.url}" in capsys.readouterr().err
