"""Case: a misspelt key or a wrong value is never ignored, at any level."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gateway.config.faults import Location, render_location
from tests.gateway.config.loading import BASE, fault, faults, load

EVERYTHING = Path(__file__).with_name("everything.yaml").read_text(encoding="utf-8")
ENV = {
    name: f"{name}-secret"
    for name in ("TEAM_A_KEY", "KEY_PEPPER", "OPENAI_API_KEY", "AZURE_KEY", "RESP_KEY", "SEAL_KEY", "MCP_TOKEN")
}
FREE = ("params", "headers", "otlp_headers", "defaults", "env", "options", "header", "metadata")
"""Of what stands below them the user makes up the keys."""


def mappings(value: object, at: Location = ()) -> Iterator[Location]:
    """Where the mappings of the format stand that have fixed keys."""
    if isinstance(value, dict):
        if not at or (at[-1] not in (*FREE, "adapters", "mcp", "models", "per_model", "providers", "teams")):
            yield at
        for key, child in value.items():
            yield from mappings(child, (*at, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from mappings(child, (*at, index))


LEVELS = sorted(mappings(yaml.safe_load(EVERYTHING)), key=str)


@pytest.fixture(scope="module")
def misspelt() -> list[str]:
    """What is said of the whole format with an unknown key at every level."""
    document = yaml.safe_load(EVERYTHING.replace("on:", "'on':").replace("content: off", "content: 'off'"))
    for level in LEVELS:
        inner = document
        for step in level:
            inner = inner[step]
        inner["unknwon_key"] = 1
    return faults(yaml.safe_dump(document), ENV)


@pytest.mark.parametrize("level", LEVELS, ids=render_location)
def test_an_unknown_key_is_refused_at_every_level(level: Location, misspelt: list[str]) -> None:
    place = render_location((*level, "unknwon_key"))
    assert any(f"{place}: unknown key 'unknwon_key'" in line for line in misspelt), misspelt


def test_there_are_many_levels() -> None:
    assert len(LEVELS) > 40


def test_the_case_of_the_misspelt_section() -> None:
    lines = faults("general_setting:\n  master_key: env:KEY\nmodels: []\n")
    assert lines[0] == "run.yaml:1: version: the key is missing"
    assert lines[1].startswith(
        "run.yaml:1: general_setting: unknown key 'general_setting', expected one of: alerts, auth, cache"
    )
    assert lines[2] == "run.yaml:3: models: expected a mapping ({} for an empty one), got an empty list"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("severs: {}", "severs: unknown key 'severs', did you mean 'server'?"),
        ("server: {prot: 1}", "server.prot: unknown key 'prot', did you mean 'port'?"),
        ("auth: {keyes: []}", "auth.keyes: unknown key 'keyes', did you mean 'keys'?"),
        ("  openai: {apikey: x}", "providers.openai.apikey: unknown key 'apikey', did you mean 'api_key'?"),
        ("  openai: {weight: x}", "providers.openai.weight: unknown key 'weight', expected one of: api_key, base_url"),
        ("models: {a: {target: []}}", "models.a.target: unknown key 'target', did you mean 'targets'?"),
        (
            "models: {a: {targets: [{user: local/tiny}]}}",
            "models.a.targets[0].user: unknown key 'user', did you mean 'use'?",
        ),
        (
            "reliability: {retry: {attempt: 1}}",
            "reliability.retry.attempt: unknown key 'attempt', did you mean 'attempts'?",
        ),
    ],
)
def test_an_unknown_key_gets_the_nearest_name_of_its_level(text: str, expected: str) -> None:
    assert any(expected in line for line in faults(BASE + text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  openai: {url: 'http://h'}", "unknown key 'url', did you mean 'base_url'?"),
        ("  openai: {api_base: 'http://h'}", "unknown key 'api_base', did you mean 'base_url'?"),
        ("  openai: {model: gpt-5}", "unknown key 'model'; here it is named where it is used, as in openai/gpt-5"),
        ("  openai: {project: p}", "unknown key 'project'; here it is a key of the type 'gemini'"),
        ("  openai: {timeout: 60}", "unknown key 'timeout', did you mean 'timeouts'?"),
        ("reliability: {timeout: 60}", "unknown key 'timeout', did you mean 'timeouts'?"),
        ("reliability: {num_retries: 2}", "unknown key 'num_retries', did you mean 'retry'?"),
        ("models: {a: {targets: [local/tiny], fallbacks: []}}", "unknown key 'fallbacks', did you mean 'on_failure'?"),
        ("cache: {exact: {ttl: 5}}", "unknown key 'ttl', did you mean 'ttl_s'?"),
        ("auth: {keys: [{id: a, secret: s, key: x}]}", "unknown key 'key', did you mean 'secret'?"),
        ("keys: []", "unknown key 'keys'; here it is 'auth.keys'"),
        ("master_key: x", "unknown key 'master_key'; here it is 'auth.keys'"),
        ("limits: {rpm: 1}", "unknown key 'limits'; here it is 'limits' of each entry of 'auth.keys'"),
        ("logging: debug", "unknown key 'logging'; here it is 'telemetry.log'"),
        ("redis: {}", "unknown key 'redis'; here it is 'shared.url'"),
        ("virtual_keys: []", "unknown key 'virtual_keys'; here it is 'auth.keys'"),
        (
            "telemetry: {log_level: debug}",
            "'log_level'; here it is one level for all: a line a request, in the form of",
        ),
        (
            "model_list: []",
            "unknown key 'model_list'; here it is 'providers' and 'models' of this gateway's own format",
        ),
        ("  claude: {type: claude}", "unknown provider type 'claude', did you mean 'anthropic'?"),
        ("  v: {type: vertex_ai}", "unknown provider type 'vertex_ai', did you mean 'gemini'?"),
        ("  a: {type: azure-openai}", "unknown provider type 'azure-openai', did you mean 'azure'?"),
    ],
)
def test_words_of_other_gateways_are_understood(text: str, expected: str) -> None:
    assert expected in fault(BASE + text)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("models: {a: {path: ./a.gguf}}", "unknown key 'path', did you mean 'source'?"),
        ("models: {a: {model: ./a.gguf}}", "unknown key 'model', did you mean 'source'?"),
        ("models: {a: {max_model_len: 9}}", "unknown key 'max_model_len', did you mean 'context'?"),
        ("model: a, max_num_seqs: 9", "unknown key 'max_num_seqs', did you mean 'scheduler'?"),
        ("models: {a: {n_gpu_layers: 99}}", "unknown key 'n_gpu_layers'; here it is 'device' of the local provider"),
        ("models: {a: {keep_alive: 5m}}", "unknown key 'keep_alive'; here it is 'idle_unload_s' of the local provider"),
        ("models: {a: {ttl: 300}}", "unknown key 'ttl'; here it is 'idle_unload_s' of the local provider"),
        (
            "model: a, max_loaded_models: 2",
            "unknown key 'max_loaded_models'; here it is 'max_loaded' of the local provider",
        ),
    ],
)
def test_words_of_servers_of_local_models_are_understood(row: str, expected: str) -> None:
    assert expected in fault(f"version: 1\nproviders:\n  local: {{{row}}}\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("server: {port: '8080'}", "server.port: expected a whole number, got '8080'"),
        ("server: {port: 80.5}", "server.port: expected a whole number, got 80.5"),
        ("server: {port: true}", "server.port: expected a whole number, got true"),
        ("server: {port: 65536}", "server.port: expected at most 65535, got 65536"),
        ("server: {port: }", "server.port: expected a whole number, got nothing"),
        ("server: {port: [1]}", "server.port: expected a whole number, got a list"),
        ("server: {completions_as_chat: yes}", "server.completions_as_chat: expected true or false, got 'yes'"),
        ("server: {completions_as_chat: 1}", "server.completions_as_chat: expected true or false, got 1"),
        ("server: {drain_s: .inf}", "server.drain_s: expected a number, got '.inf'"),
        ("server: {drain_s: -1}", "server.drain_s: expected at least 0, got -1"),
        ("server: {drain_s: 1e999}", "server.drain_s: expected"),
        ("server: {keepalive_s: 0}", "server.keepalive_s: expected more than 0, got 0"),
        ("server: {unsupported_params: ignore}", "server.unsupported_params: expected 'error' or 'drop', got 'ignore'"),
        ("server: []", "server: expected a mapping ({} for an empty one), got an empty list"),
        ("server: ", "server: expected a mapping ({} for an empty one), got nothing"),
        ("auth: {keys: {id: a, secret: s}}", "auth.keys: expected a list, got a mapping"),
        ("auth: {keys: [{id: a}]}", "auth.keys[0].secret: the key is missing"),
        ("auth: {keys: [{id: 1, secret: s}]}", "auth.keys[0].id: expected text, got a number"),
        ("auth: {keys: [{id: 'a b', secret: s}]}", "auth.keys[0].id: expected letters, digits"),
        ('auth: {keys: [{id: a, secret: "s\\n"}]}', "auth.keys[0].secret: expected printable ASCII without blanks"),
        ("  openai: {api_key: 123}", "providers.openai.api_key: expected text, got a number"),
        ("  openai: {base_url: localhost:80}", "providers.openai.base_url: expected an http:// or https:// address"),
        ("  openai: {base_url: 'http://u:p@h/'}", "an address must not hold a user name or a password"),
        ("  openai: {base_url: 'http://h/?key=1'}", "an address must not hold a query or a fragment"),
        ("  openai: {base_url: ' http://h/v1'}", "providers.openai.base_url: expected an http:// or https:// address"),
        ("  openai: {base_url: 'http://h:99999/'}", "expected an http:// or https:// address"),
        ("  openai: {proxy: 'socks://h'}", "providers.openai.proxy: expected an http:// or https:// address"),
        ("  openai: {headers: {a: 1}}", "providers.openai.headers.a: expected text, got a number"),
        ("  openai: {enabled: maybe}", "providers.openai.enabled: expected true or false or 'auto', got 'maybe'"),
        ("  openai: {max_connections: 0}", "providers.openai.max_connections: expected at least 1, got 0"),
        ("  openai: ", "providers.openai: expected a mapping ({} for an empty one), got nothing"),
        (
            "  foo: {base_url: 'http://h'}",
            "providers.foo.type: the key is missing, and 'foo' is no type, expected one of: anthropic, azure, bedrock",
        ),
        (
            "  claude: {api_key: x}",
            "providers.claude.type: the key is missing, and 'claude' is no type, did you mean 'anthropic'?",
        ),
        (
            "  mistrall: {api_key: x}",
            "providers.mistrall.type: the key is missing, and 'mistrall' is no type, did you mean 'mistral'?",
        ),
        ("  foo: {type: opnai}", "providers.foo.type: unknown provider type 'opnai', did you mean 'openai'?"),
        ("models: {a: {targets: [local/tiny], strategy: rendom}}", "models.a.strategy: expected 'ordered', 'weighted'"),
        ("models: {a: 3}", "models.a: expected a mapping"),
        (
            "models: {a: {targets: [{use: local/tiny, when: {}}]}}",
            "models.a.targets[0].when: expected a condition under 'header', 'metadata' or 'key'",
        ),
        (
            "models: {a: {targets: [{use: local/tiny, when: {header: {}}}]}}",
            "models.a.targets[0].when: expected a condition under 'header', 'metadata' or 'key'",
        ),
        (
            "models: {a: {targets: [{use: local/tiny, when: {header: {x-team: []}}}]}}",
            "models.a.targets[0].when.header.x-team: expected at least one entry",
        ),
        (
            "models: {a: {targets: [{use: local/tiny, when: {header: {x-team: ''}}}]}}",
            "models.a.targets[0].when.header.x-team: expected text that is not empty",
        ),
        (
            "models: {a: {targets: [{use: local/tiny, when: {header: {x-team: [a, 5]}}}]}}",
            "models.a.targets[0].when.header.x-team[1]: expected text, got a number",
        ),
        (
            "models: {a: {targets: [{use: local/tiny, when: {header: {x-team: 'a*b*'}}}]}}",
            "models.a.targets[0].when.header.x-team: expected at most one '*'",
        ),
        (
            "models: {a: {targets: [{use: local/tiny, when: {header: {x-team: [a, a]}}}]}}",
            "models.a.targets[0].when.header.x-team: expected each value once",
        ),
        (
            "models: {a: {targets: [{use: local/tiny, when: {header: {'x team': a}}}]}}",
            "models.a.targets[0].when.header: 'x team' is no name of a header",
        ),
        (
            "models: {a: {targets: [{use: local/tiny, when: {header: {x-team: a, X-Team: b}}}]}}",
            "models.a.targets[0].when.header: 'X-Team' stands here twice",
        ),
        (
            "models: {a: {targets: [{use: local/tiny, when: {header: {Authorization: a}}}]}}",
            "models.a.targets[0].when.header: 'Authorization' holds a secret",
        ),
        (
            "models: {a: {targets: [{use: local/tiny, when: {metadata: {tier: true}}}]}}",
            "models.a.targets[0].when.metadata.tier: expected a text or a list of texts",
        ),
        (
            "models: {a: {targets: [{use: local/tiny, when: {headers: {x-team: a}}}]}}",
            "models.a.targets[0].when.headers: unknown key 'headers', did you mean 'header'?",
        ),
        ("reliability: {timeouts: {gap_s: 0}}", "reliability.timeouts.gap_s: expected more than 0, got 0"),
        ("reliability: {retry: {attempts: 0}}", "reliability.retry.attempts: expected at least 1, got 0"),
        ("telemetry: {log: xml}", "telemetry.log: expected 'json' or 'text', got 'xml'"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(text: str, expected: str) -> None:
    assert expected in fault(BASE + text)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("device: gpu", "providers.local.device: expected 'auto', 'cpu' or 'cuda', got 'gpu'"),
        ("threads: 0", "providers.local.threads: expected at least 1 or 'auto', got 0"),
        ("tensor_parallel: 0", "providers.local.tensor_parallel: expected at least 1 or 'auto', got 0"),
        ("tensor_parallel: all", "providers.local.tensor_parallel: expected a whole number or 'auto', got 'all'"),
        ("threads: many", "providers.local.threads: expected a whole number or 'auto', got 'many'"),
        ("kv_cache: {memory: lots}", 'providers.local.kv_cache.memory: expected a size such as "2GiB"'),
        ("kv_cache: {block_size: 0}", "providers.local.kv_cache.block_size: expected at least 1, got 0"),
        ("scheduler: {queue: none}", "providers.local.scheduler.queue: expected a whole number, got 'none'"),
        ("api_key: x", "providers.local.api_key: unknown key 'api_key'"),
        ("idle_unload_s: 0", "providers.local.idle_unload_s: expected more than 0 or 'never', got 0"),
        ("idle_unload_s: 5m", "providers.local.idle_unload_s: expected a number or 'never', got '5m'"),
        ("max_loaded: 0", "providers.local.max_loaded: expected at least 1, got 0"),
    ],
)
def test_a_wrong_value_of_the_local_provider_is_refused(entry: str, expected: str) -> None:
    assert expected in fault(f"version: 1\nproviders: {{local: {{model: m, {entry}}}}}")


def test_more_models_at_the_start_than_may_be_in_memory_are_refused() -> None:
    told = fault("version: 1\nproviders: {local: {max_loaded: 1, models: {a: {}, b: {}, c: {load: on_demand}}}}")
    assert "2 models are loaded at start, and 'max_loaded' lets 1 be in memory" in told


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("tool_format: hermez", "m.tool_format: unknown format 'hermez', did you mean 'hermes'?"),
        ("reasoning_format: 1", "m.reasoning_format: expected text, got a number"),
        ("reasoning_format: zzz", "m.reasoning_format: unknown format 'zzz', expected one of: none, think"),
    ],
)
def test_a_text_format_that_nobody_reads_is_refused(entry: str, expected: str) -> None:
    assert expected in fault(f"version: 1\nproviders: {{local: {{models: {{m: {{{entry}}}}}}}}}")


STAND_INS = (
    "$OPENAI_API_KEY",
    "os.environ/OPENAI_API_KEY",
    "env:OPENAI_API_KEY",
    "{{ OPENAI_API_KEY }}",
    "<your key>",
    "%OPENAI_API_KEY%",
)


@pytest.mark.parametrize("value", STAND_INS)
def test_what_only_stands_for_a_secret_is_not_taken_for_one(value: str) -> None:
    why = 'expected the secret itself; write "${NAME}" for the environment variable NAME'
    for place, text in (
        ("providers.openai.api_key", "  openai: {api_key: '%s'}"),
        ("providers.openai.headers.authorization", "  openai: {headers: {authorization: 'Bearer %s'}}"),
        ("auth.keys[0].secret", "auth: {keys: [{id: a, secret: '%s'}]}"),
    ):
        assert fault(BASE + text % value).endswith(f"{place}: {why}")


@pytest.mark.parametrize("value", STAND_INS)
def test_a_secret_from_outside_the_file_may_look_like_anything(value: str) -> None:
    config = load(BASE + 'auth: {keys: [{id: a, secret: "${KEY}"}]}', {"KEY": value})
    assert config.run.auth is not None
    assert config.run.auth.keys[0].secret.get_secret_value() == value


@pytest.mark.parametrize("value", ["pa$$word", "a<b>", "$2b$12$abc.def", "Bearer abc"])
def test_a_secret_that_holds_such_signs_is_taken(value: str) -> None:
    load(BASE + f"  openai: {{api_key: '{value}'}}")


@pytest.mark.parametrize("version", ["2", "'1'", "", "1.0", "true"])
def test_another_version_is_refused(version: str) -> None:
    assert fault(f"version: {version}\n").startswith("run.yaml:1: version: expected ")
