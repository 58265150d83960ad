from pathlib import Path

import pytest

from gateway.cli import main
from local_engine.kernels.cpu.library import INSTRUCTION_SETS
from tests.gateway.cli.conftest import WriteConfig
from tests.local_engine.tiny_models import tiny_oracle, write_safetensors


def test_a_valid_file_is_reported_as_tables(
    write_config: WriteConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLM_GATEWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SOME_URL", "http://hidden.example.com/v1")
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF" + bytes(2044))
    write_config(
        """
        version: 1
        providers:
          openai: {api_key: "${NO_SUCH_KEY}", enabled: auto}
          mistral: {api_key: k}
          gemini: {project: p}
          vllm: {base_url: "${SOME_URL}"}
          groq: {enabled: false}
          local: {models: {smollm2-135m-instruct: {}, tiny: {source: ./tiny.gguf, load: on_demand}}}
        models:
          fast: {targets: [openai/gpt, mistral/m], on_failure: [local/tiny]}
        """.replace("\n        ", "\n")
    )
    assert main(["check"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "openai openai off: the environment variable 'NO_SUCH_KEY' is not set https://api.openai.com/v1" in lines
    assert "mistral mistral on https://api.mistral.ai/v1" in lines
    assert "gemini gemini on the vendor's own" in lines
    assert "vllm vllm on ***" in lines
    assert "groq groq off: enabled: false https://api.groq.com/openai/v1" in lines
    assert "local local on in this process" in lines
    assert "smollm2-135m-instruct smollm2-135m-instruct to be fetched 94 MiB start" in lines
    assert f"tiny {tmp_path / 'tiny.gguf'} on this machine 2 KiB on_demand" in lines
    assert "fast openai/gpt (off), mistral/m local/tiny" in lines
    assert lines[-2].removeprefix("CPU kernels: ") in INSTRUCTION_SETS
    assert lines[-1] == "run.yaml is valid"


def test_the_file_may_be_named_without_the_option(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config("version: 1\nproviders: {openai: {}}\n").rename("mine.yaml")
    assert main(["check", "mine.yaml"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "mine.yaml is valid"


def test_a_file_that_switches_no_provider_on_is_told(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config("version: 1\nproviders: {openai: {enabled: false}}\n")
    assert main(["check"]) == 0
    assert capsys.readouterr().err == "gateway: no provider is switched on, so no model can be called\n"


def test_an_invalid_file_lists_every_fault(write_config: WriteConfig, capsys: pytest.CaptureFixture[str]) -> None:
    write_config("version: 1\nmodles: {}\nserver: {port: x}\n")
    assert main(["check"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "gateway: run.yaml:2: modles: unknown key 'modles', did you mean 'models'?",
        "gateway: run.yaml:3: server.port: expected a whole number, got 'x'",
    ]


def test_a_model_or_a_default_that_cannot_work_fails_the_check(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(
        "version: 1\nproviders: {local: {models: {a: {source: ./none.gguf, mmproj: ./no-tower.gguf},\n"
        "smollm2-135m-instruct: {chat_template: none.jinja,\n"
        "adapters: {sql: ./none}, speculative: {kind: draft, model: ./none.gguf}}}}}\n"
        "models: {x: {targets: [local/a], defaults: {max_tokenz: 1}}}\n"
    )
    assert main(["check"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("gateway: run.yaml:2: providers.local.models.a: source ")
    assert lines[1].startswith("gateway: run.yaml:2: providers.local.models.a.mmproj: source '/")
    assert lines[2].startswith(
        "gateway: run.yaml:3: providers.local.models.smollm2-135m-instruct.chat_template: no file "
    )
    assert lines[3].startswith(
        "gateway: run.yaml:4: providers.local.models.smollm2-135m-instruct.adapters.sql: no file or folder /"
    )
    assert lines[4].startswith(
        "gateway: run.yaml:4: providers.local.models.smollm2-135m-instruct.speculative.model: source "
    )
    assert lines[5].startswith("gateway: run.yaml:5: models.x.defaults.max_tokenz: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("providers: {bedrock: {api_key: x}}", "2: providers.bedrock.region: required for the type bedrock"),
        ("providers: {openai: {ca_file: nope.pem}}", "2: providers.openai.ca_file: "),
        ("providers: {openai: {proxy: 'http://'}}", "2: providers.openai.proxy: must start with http:// or https://"),
        ("providers: {openai: {params: {model: y}}}", "2: providers.openai.params.model: this field can't have a"),
        ("guardrails: [\n{use: nope}]", "3: guardrails[0].use: no installed package brings a guardrail 'nope'"),
        ("tools: {functions: {f: {use: nope}}}", "2: tools.functions.f.use: no installed package brings the tools"),
        (
            "auth: {keys: [{id: a, secret: s, limits: {rpm: 1}}]}\nshared: {url: 'http://h'}",
            "3: shared.url: expected redis://",
        ),
        ("server: {tls: {cert: no.pem, key: no.pem}}", "2: server.tls: "),
        ("providers: {openai: {client_cert: no.pem}}", "2: providers.openai.client_cert: "),
        ("providers: {openai: {client_key: no.pem}}", "2: providers.openai.client_key: expected 'client_cert' beside"),
    ],
)
def test_what_could_not_be_started_fails_the_check(
    text: str, expected: str, write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(f"version: 1\n{text}\n")
    assert main(["check"]) == 1
    assert f"gateway: run.yaml:{expected}" in capsys.readouterr().err


def test_what_is_wrong_with_several_providers_is_told_at_once(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config("version: 1\nproviders:\n  bedrock: {api_key: x}\n  openai: {ca_file: nope.pem}\n  mistral: {}\n")
    assert main(["check"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1:3] for line in lines] == [
        ["run.yaml:3", "providers.bedrock.region"],
        ["run.yaml:4", "providers.openai.ca_file"],
    ]


def test_an_address_without_the_usual_path_is_doubted(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(
        "version: 1\nproviders:\n  mine: {type: openai-compatible, base_url: 'http://h:8000'}\n"
        "  other: {type: openai-compatible, base_url: 'http://h:8000/x'}\n  ollama: {base_url: 'http://h:11434'}\n"
    )
    assert main(["check"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "run.yaml is valid"
    assert captured.err.splitlines() == [
        "gateway: run.yaml:3: providers.mine.base_url: the address has no path, "
        "but APIs of this type mostly lie below '/v1'"
    ]


def test_what_each_process_has_of_a_shared_model_is_told(
    write_config: WriteConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_safetensors(tiny_oracle(), tmp_path / "model")
    local = f"device: cpu, tensor_parallel: %d, models: {{tiny: {{source: {folder}}}}}"
    write_config(f"version: 1\nproviders: {{local: {{{local % 2}}}}}\n")
    assert main(["check"]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == (
        "local.models.tiny: shared by 2 processes: 2 of 4 heads, 1 of 2 kv heads, 32 of 64 of the width "
        "and 64 of 128 tokens each"
    )
    write_config(f"version: 1\nproviders: {{local: {{{local % 3}}}}}\n")
    assert main(["check"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "gateway: run.yaml:2: providers.local.models.tiny: model: tensor_parallel: 3 processes cannot share it: "
        "4 query heads do not divide by 3"
    ]
