import pytest

from gateway.cli import main
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
