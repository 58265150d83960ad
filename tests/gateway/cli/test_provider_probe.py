"""`gateway check --probe` asks providers for their lists, and says what is not there."""

import pytest

from gateway.cli import main
from gateway.cli.configuration import load
from gateway.cli.provider_probe import Probe, unlisted
from tests.gateway.cli.conftest import FakeGateway, WriteConfig

TEXT = """\
version: 1
providers:
  one: {type: openai-compatible, base_url: "http://127.0.0.1:PORT/v1", api_key: secret-of-one}
models:
  a: one/fast
  b: {targets: [one/fast, one/fsat], on_failure: [one/slow-thinker]}
  c*: one/c*
"""


def test_a_provider_that_answers_is_told_with_its_models_and_targets_that_it_lacks_are_doubts(
    write_config: WriteConfig, fake_gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(TEXT.replace("PORT", str(fake_gateway.port)))
    assert main(["check", "--probe"]) == 0
    captured = capsys.readouterr()
    lines = [line.split() for line in captured.out.splitlines()]
    assert lines[lines.index(["Answers"]) + 1] == ["name", "models", "after"]
    assert lines[lines.index(["Answers"]) + 2][:2] == ["one", "1"]
    assert captured.out.endswith("run.yaml is valid\n")
    assert captured.err.splitlines() == [
        "gateway: run.yaml:6: models.b.targets[1]: 'one' lists no model 'fsat', did you mean 'fast'?",
        "gateway: run.yaml:6: models.b.on_failure[0]: 'one' lists no model 'slow-thinker'",
    ]
    assert fake_gateway.keys == ["Bearer secret-of-one"]


def test_a_refused_key_fails_the_check_and_is_not_shown(
    write_config: WriteConfig, fake_gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_gateway.status = 401
    fake_gateway.error = {"message": "wrong key secret-of-one"}
    write_config(TEXT.replace("PORT", str(fake_gateway.port)))
    assert main(["check", "--probe"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("gateway: run.yaml:3: providers.one: cannot be asked: ")
    assert "secret-of-one" not in captured.err
    assert "is valid" not in captured.out


def test_a_provider_that_is_not_there_fails_the_probe_and_not_the_check(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config('version: 1\nproviders: {vllm: {base_url: "http://127.0.0.1:1/v1"}}\n')
    assert main(["check"]) == 0
    assert main(["check", "--probe"]) == 1
    assert "run.yaml:2: providers.vllm: cannot be asked: " in capsys.readouterr().err


@pytest.mark.parametrize("listed", ["fast-2026-01-01", "fast:latest"])
def test_a_date_or_a_tag_behind_a_name_is_the_same_model(write_config: WriteConfig, listed: str) -> None:
    path = write_config("version: 1\nproviders: {openai: {}}\nmodels: {a: openai/fast, b: openai/fas}\n")
    (doubt,) = unlisted(load(path), {"openai": Probe(frozenset({listed}), 0.1)})
    assert doubt.location == ("models", "b", "targets", 0)


def test_deployments_of_azure_are_on_no_list(write_config: WriteConfig) -> None:
    path = write_config(
        'version: 1\nproviders: {azure: {base_url: "https://x.openai.azure.com/openai/v1"}}\nmodels: {a: azure/mine}\n'
    )
    assert unlisted(load(path), {"azure": Probe(frozenset({"gpt-4o"}), 0.1)}) == []
