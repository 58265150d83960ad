import dataclasses
import os
from pathlib import Path

import pydantic
import pytest

from gateway.config import ConfigError, load_config, parse_config
from gateway.config.document import MAX_TEXT_CHARS
from gateway.config.sections.local import LocalProvider
from gateway.config.sections.providers import RemoteProvider
from gateway.storage.place import FilePlace, parse_place
from tests.gateway.config.loading import BASE, TYPES, fault, faults, load


def local(text: str) -> LocalProvider:
    provider = load(text).providers["local"]
    assert isinstance(provider, LocalProvider)
    return provider


def remote(text: str, name: str = "openai", **env: str) -> RemoteProvider:
    provider = load(text, env).providers[name]
    assert isinstance(provider, RemoteProvider)
    return provider


def test_the_smallest_file_has_all_defaults() -> None:
    config = load("version: 1\nproviders:\n  local: {type: local, model: smollm2-135m-instruct}\n")
    server = config.server
    assert (server.host, server.port, server.max_body_mb, server.max_depth) == ("127.0.0.1", 8080, 64, 128)
    assert (server.drain_s, server.keepalive_s, server.completions_as_chat) == (30, 15, False)
    assert config.auth is None
    timeouts = config.reliability.timeouts
    assert (timeouts.connect_s, timeouts.first_token_s, timeouts.gap_s, timeouts.total_s) == (5, 60, 60, 600)
    assert timeouts.whole_s is None
    assert (config.reliability.retry.attempts, config.reliability.retry.max_wait_s) == (2, 20)
    assert config.telemetry.log == "json"
    provider = config.providers["local"]
    assert isinstance(provider, LocalProvider)
    assert (provider.device, provider.threads) == ("auto", "auto")
    kv_cache = provider.kv_cache
    assert (kv_cache.memory, kv_cache.block_size, kv_cache.prefix_cache) == ("auto", 16, True)
    scheduler = provider.scheduler
    assert (scheduler.max_batch_tokens, scheduler.max_sequences, scheduler.queue) == (None, 256, 1024)
    assert list(provider.models) == ["smollm2-135m-instruct"]


def test_everything_that_works_in_one_file() -> None:
    config = load(
        """
        version: 1
        server: {host: 0.0.0.0, port: 1234, max_body_mb: 0.5, max_depth: 9, drain_s: 1.5, keepalive_s: 2,
                 completions_as_chat: true, unsupported_params: drop}
        auth:
          keys:
            - {id: a, secret: "${A}", models: [fast, "openai/*"]}
            - {id: b, secret: "${B}"}
        providers:
          openai: {api_key: "${KEY}"}
          vllm: {type: openai-compatible, base_url: "http://vllm:8000/v1/", headers: {x-team: a}, max_connections: 9,
                 params: {top_k: 3}, proxy: "http://proxy:1", ca_file: ca.pem, unsupported_params: drop}
          local:
            device: cpu
            threads: 2
            models:
              tiny: {source: ./tiny.gguf, dtype: bfloat16, context: 512, chat_template: x.jinja, load: on_demand}
              hub: {source: "hf:org/name", mmproj: "hf:org/name:mmproj*"}
              seeing: {source: ./tiny.gguf, mmproj: ./mmproj.gguf}
            kv_cache: {memory: 2GiB, block_size: 32, prefix_cache: false}
            scheduler: {max_batch_tokens: 64, max_sequences: 2, queue: 3}
        models:
          fast: openai/gpt
          smart: {targets: [openai/gpt, {use: "vllm/org/name:tag"}], strategy: ordered, on_failure: [local/tiny],
                  defaults: {max_tokens: 9}, unsupported_params: error}
        reliability: {timeouts: {connect_s: 0.5, first_token_s: 1, gap_s: 2, total_s: 3},
                      retry: {attempts: 1, max_wait_s: 0}}
        telemetry: {log: text}
        """,
        {"A": "secret-a", "B": "secret-b", "KEY": "sk-1"},
        Path("/etc/gateway/run.yaml"),
    )
    assert [key.id for key in config.auth.keys] == ["a", "b"] if config.auth else False
    assert config.auth
    assert config.auth.keys[0].models == ("fast", "openai/*")
    assert config.auth.keys[1].models == ("*",)
    vllm = config.providers["vllm"]
    assert isinstance(vllm, RemoteProvider)
    assert vllm.base_url == "http://vllm:8000/v1"
    assert vllm.ca_file == "/etc/gateway/ca.pem"
    assert vllm.headers["x-team"].get_secret_value() == "a"
    assert dict(vllm.params) == {"top_k": 3}
    engine = config.providers["local"]
    assert isinstance(engine, LocalProvider)
    assert engine.kv_cache.memory == 2 * 1024**3
    assert engine.kv_cache.prefix_cache is False
    assert engine.models["tiny"].source == "/etc/gateway/tiny.gguf"
    assert engine.models["tiny"].chat_template == "/etc/gateway/x.jinja"
    assert engine.models["hub"].source == "hf:org/name"
    assert engine.models["hub"].mmproj == "hf:org/name:mmproj*"
    assert engine.models["seeing"].mmproj == "/etc/gateway/mmproj.gguf"
    assert [target.use for target in config.models["fast"].targets] == ["openai/gpt"]
    assert [target.use for target in config.models["smart"].targets] == ["openai/gpt", "vllm/org/name:tag"]
    assert config.models["smart"].on_failure == ("local/tiny",)


def test_nothing_of_a_configuration_can_be_changed() -> None:
    config = load(BASE + "models: {a: local/tiny}")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.path = Path()  # type: ignore[misc]
    with pytest.raises(pydantic.ValidationError):
        config.server.port = 1
    for mapping in (config.providers, config.models, config.off, config.models["a"].defaults):
        with pytest.raises(TypeError):
            mapping["x"] = None  # type: ignore[index]


def test_the_type_follows_from_a_name_that_is_one() -> None:
    assert remote("version: 1\nproviders: {openai: {api_key: k}}").type == "openai"
    assert remote("version: 1\nproviders: {mistral: {}}", "mistral").type == "mistral"
    assert remote("version: 1\nproviders: {openai: {type: mistral}}").type == "mistral"


def test_any_registered_type_is_taken() -> None:
    text = "version: 1\nproviders: {mine: {type: plugin}, plugin: {}}"
    config = parse_config(text, {}, provider_types=["plugin"])
    assert [provider.type for provider in config.providers.values()] == ["plugin", "plugin"]
    assert "unknown provider type 'plugin'" in faults(text)[0]


def test_auto_is_off_when_a_variable_is_missing() -> None:
    config = load(BASE + "  openai: {api_key: '${KEY}', enabled: auto}\nmodels: {a: openai/gpt}")
    assert dict(config.off) == {"openai": "the environment variable 'KEY' is not set"}
    assert list(config.providers) == ["local"]
    assert config.models["a"].targets[0].use == "openai/gpt"


def test_auto_is_off_when_its_key_file_is_missing_or_its_key_is_empty() -> None:
    config = load(
        BASE + "  openai: {api_key: '${file:none}', enabled: auto}\n  mistral: {api_key: '${K:-}', enabled: auto}"
    )
    assert "the file 'none' cannot be read" in config.off["openai"]
    assert config.off["mistral"] == "its api_key is empty"


def test_auto_is_on_when_its_credentials_resolve() -> None:
    assert remote(BASE + "  openai: {api_key: '${KEY}', enabled: auto}", KEY="k").enabled == "auto"


def test_an_entry_that_is_switched_off_needs_no_credentials() -> None:
    config = load(BASE + "  openai: {api_key: '${KEY}', enabled: false}\n  mistral: {enabled: false}")
    assert set(config.off) == {"openai", "mistral"}


def test_an_entry_that_is_off_is_still_checked() -> None:
    lines = faults(BASE + "  openai: {api_kee: '${KEY}', api_key: '${KEY}', enabled: auto}")
    assert lines == ["run.yaml:4: providers.openai.api_kee: unknown key 'api_kee', did you mean 'api_key'?"]


def test_an_empty_key_is_an_error_when_the_provider_is_on() -> None:
    told = "leave it out if none is needed, or switch the provider off with enabled: auto"
    line = fault(BASE + "  openai: {api_key: '${KEY}'}", {"KEY": ""})
    assert f"providers.openai.api_key: the key is empty; {told}" in line


def test_a_key_whose_variable_is_not_set_is_not_called_empty_as_well() -> None:
    assert faults(BASE + "  openai: {api_key: '${NO_KEY}'}") == [
        "run.yaml:4: providers.openai.api_key: the environment variable 'NO_KEY' is not set"
    ]


def test_all_faults_are_told_at_once_in_the_order_of_the_lines() -> None:
    lines = faults(
        """\
        version: 2
        server: {host: 0.0.0.0, prot: 1}
        providers:
          openai: {api_key: "${KEY}"}
          local: {models: {tiny: {contxt: 1}}}
        models:
          a: nope/x
          b: {targets: [openai/gpt], hedge_s: -1}
          b: openai/gpt
        tools: {mpc: {}}
        telemetry: {log: xml}
        """
    )
    assert [line.split(":")[1] for line in lines] == ["1", "2", "2", "4", "5", "7", "8", "9", "10", "11"]


def test_a_file_that_is_missing_unreadable_or_not_text_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"version: 1\n\xff\n")
    (tmp_path / "huge.yaml").write_bytes(b"version: 1\n" + b"#" * 5 * MAX_TEXT_CHARS)
    for name, why in [
        ("none.yaml", "none.yaml: there is no such file"),
        (".", "cannot be read: Is a directory"),
        ("binary.yaml", "binary.yaml:2: not UTF-8 text"),
        ("huge.yaml", f"huge.yaml:1: the file is too large, expected at most {MAX_TEXT_CHARS} characters"),
        ("a\0b", "cannot be read: not a file name"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load_config(tmp_path / name, os.environ, provider_types=TYPES)
        assert len(caught.value.lines) == 1
        assert caught.value.lines[0].endswith(why)


def test_a_file_is_loaded_with_paths_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sesame\n")
    file = tmp_path / "run.yaml"
    file.write_text('version: 1\nproviders: {openai: {api_key: "${file:key}", ca_file: certs/ca.pem}}\n')
    provider = load_config(file, {}, provider_types=TYPES).providers["openai"]
    assert isinstance(provider, RemoteProvider)
    assert provider.api_key
    assert provider.api_key.get_secret_value() == "sesame"
    assert provider.ca_file == str(tmp_path / "certs/ca.pem")


@pytest.mark.parametrize("file", ["data/gateway.db", "~/gateway.db", "/srv/gateway.db"])
def test_a_database_is_the_same_from_wherever_the_gateway_is_started(file: str, tmp_path: Path) -> None:
    run_yaml = tmp_path / "run.yaml"
    run_yaml.write_text(f"version: 1\nproviders: {{local: {{model: tiny}}}}\nstorage: {{url: 'sqlite:///{file}'}}\n")
    storage = load_config(run_yaml, {}, provider_types=TYPES).run.storage
    assert storage is not None
    place = parse_place(storage.url.get_secret_value())
    assert place == FilePlace(tmp_path / Path(file).expanduser())


def test_a_folder_of_a_model_is_found_beside_the_file_from_wherever_it_is_started(tmp_path: Path) -> None:
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    file = tmp_path / "run.yaml"
    models = "{a: {source: models/tiny}, b: {source: org/name}, c: {source: some.gguf}}"
    file.write_text(f"version: 1\nproviders: {{local: {{models: {models}}}}}\n")
    provider = load_config(file, {}, provider_types=TYPES).providers["local"]
    assert isinstance(provider, LocalProvider)
    found = {name: model.source for name, model in provider.models.items()}
    assert found == {"a": str(tmp_path / "models/tiny"), "b": "org/name", "c": str(tmp_path / "some.gguf")}


@pytest.mark.parametrize(
    ("size", "memory"),
    [("2GiB", 2**31), ("512MiB", 2**29), ("1.5 GiB", 3 * 2**29), ("1GB", 10**9), ("'1048576B'", 2**20)],
)
def test_sizes_are_bytes(size: str, memory: int) -> None:
    assert (
        local(f"version: 1\nproviders: {{local: {{model: m, kv_cache: {{memory: {size}}}}}}}").kv_cache.memory == memory
    )


@pytest.mark.parametrize("size", ["GiB", "-1GiB", "2 gigs", "0GiB", "true"])
def test_a_size_without_meaning_is_refused(size: str) -> None:
    line = fault(f"version: 1\nproviders: {{local: {{model: m, kv_cache: {{memory: {size}}}}}}}")
    assert "providers.local.kv_cache.memory: expected" in line


@pytest.mark.parametrize("size", ["2", "4095B", "3KiB"])
def test_memory_that_holds_no_tokens_is_refused_with_what_is_the_least(size: str) -> None:
    line = fault(f"version: 1\nproviders: {{local: {{model: m, kv_cache: {{memory: {size}}}}}}}")
    assert 'providers.local.kv_cache.memory: expected at least 4KiB, such as "2GiB"; a bare number is in bytes' in line
