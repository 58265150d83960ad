import json
from pathlib import Path

import pytest
import yaml

from gateway.cli import main
from gateway.config import load_config
from tests.gateway.cli.conftest import WriteConfig


def test_the_resolved_configuration_hides_secrets_and_whatever_was_substituted(
    write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (
        ("KEY", "sk-secret"),
        ("PORT", "8099"),
        ("TARGET", "openai/gpt-secret"),
        ("MODEL", "secret-model"),
    ):
        monkeypatch.setenv(name, value)
    write_config(
        """
version: 1
server: {port: "${PORT}", drain_s: "${DRAIN:-3}"}
auth: {keys: [{id: a, secret: literal-secret}]}
providers:
  openai: {api_key: "${KEY}", headers: {x-api-key: header-secret}, proxy: "http://u:proxy-secret@h"}
  mistral: {api_key: "${NO_SUCH_KEY}", enabled: auto}
  local: {model: "${MODEL}"}
models: {fast: "${TARGET}", slow: openai/gpt}
"""
    )
    assert main(["config"]) == 0
    shown = capsys.readouterr().out
    assert "secret" not in shown.replace("secret: '***'", "")
    assert "8099" not in shown
    assert "# provider mistral is off: the environment variable 'NO_SUCH_KEY' is not set" in shown
    document = yaml.safe_load(shown)
    assert document["server"]["port"] == "***"
    assert document["server"]["drain_s"] == "***"
    assert document["server"]["host"] == "127.0.0.1"
    assert document["providers"]["openai"]["api_key"] == "***"
    assert document["models"]["fast"] == "***" or document["models"]["fast"]["targets"][0]["use"] == "***"
    assert document["models"]["slow"]["targets"][0]["use"] == "openai/gpt"


def test_what_is_printed_loads_again_as_the_same(
    write_config: WriteConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(
        "version: 1\nproviders: {openai: {base_url: 'http://h/v1'}, local: {model: m, kv_cache: {memory: 2GiB}}}\n"
        "models: {a: openai/x}\nreliability: {timeouts: {gap_s: 0.5}}\n"
    )
    assert main(["config"]) == 0
    again = tmp_path / "again.yaml"
    again.write_text(capsys.readouterr().out)
    types = ["openai", "local"]
    assert load_config(again, {}, provider_types=types).run == load_config(path, {}, provider_types=types).run


def test_the_schema_needs_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "run.yaml"
