import pytest

from tests.gateway.config.loading import BASE, fault, faults, load


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    assert load(BASE + f"server: {{host: '{host}'}}").server.is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "gateway.example.com"])
def test_another_address_without_keys_refuses_and_says_why(host: str) -> None:
    line = fault(BASE + f"server: {{host: '{host}'}}")
    assert line.startswith("run.yaml:4: server.host: other machines can reach this address, so it needs keys")
    assert "server.host" in fault(BASE + f"server: {{host: '{host}'}}\nauth: {{keys: []}}")
    assert load(BASE + f"server: {{host: '{host}'}}\nauth: {{keys: [{{id: a, secret: s}}]}}").auth


def test_a_socket_file_needs_no_keys_and_an_admin_port_beside_it_does_where_others_reach_it() -> None:
    assert load(BASE + "server: {unix: /run/g.sock, host: 0.0.0.0}").server.is_loopback
    assert "server.host" in fault(BASE + "server: {unix: /run/g.sock, host: 0.0.0.0, admin_port: 9090}")
    load(BASE + "server: {unix: /run/g.sock, admin_port: 8080}")


def test_a_certificate_beside_a_socket_file_is_for_a_port() -> None:
    tls = "tls: {cert: c.pem, key: k.pem}"
    assert fault(BASE + f"server: {{unix: /run/g.sock, {tls}}}").startswith("run.yaml:4: server.tls: a socket file")
    load(BASE + f"server: {{unix: /run/g.sock, {tls}, admin_port: 9090}}")


@pytest.mark.parametrize("mode", ["0600", "800", "rw"])
def test_the_mode_of_a_socket_file_is_three_octal_digits(mode: str) -> None:
    line = fault(BASE + f"server: {{unix: /run/g.sock, unix_mode: '{mode}'}}")
    assert line.startswith("run.yaml:4: server.unix_mode: expected three octal digits in quotes")


def test_a_misspelt_auth_section_does_not_open_the_door() -> None:
    lines = faults(BASE + "server: {host: 0.0.0.0}\nauht: {keys: [{id: a, secret: s}]}")
    assert len(lines) == 2
    assert "did you mean 'auth'?" in lines[1]


def test_the_address_of_redis_is_read_even_where_nothing_is_counted() -> None:
    assert fault(BASE + "shared: {url: 'redis:/h'}").startswith("run.yaml:4: shared.url: expected redis://HOST")
    load(BASE + "shared: {url: 'unix:///run/redis.sock'}")


@pytest.mark.parametrize("host", ["", "[::1]", "a b", "http://x"])
def test_a_host_is_an_address_or_a_name(host: str) -> None:
    assert "expected an IP address or a host name" in fault(BASE + f"server: {{host: '{host}'}}")


@pytest.mark.parametrize(("ports", "expected"), [("port: 9000, admin_port: 9000", 9000), ("admin_port: 8080", 8080)])
def test_the_admin_routes_have_a_port_of_their_own(ports: str, expected: int) -> None:
    why = f"{expected} is 'port' already, expected another one, or none for one port"
    assert fault(BASE + f"server: {{{ports}}}") == f"run.yaml:4: server.admin_port: {why}"


def test_two_free_ports_differ() -> None:
    assert load(BASE + "server: {port: 0, admin_port: 0}").server.admin_port == 0


def test_two_keys_have_different_ids_and_secrets() -> None:
    lines = faults(
        BASE + "auth:\n  keys:\n  - {id: a, secret: hunter}\n  - {id: a, secret: hunter}\n  - {id: c, secret: ''}"
    )
    assert lines == [
        "run.yaml:7: auth.keys[1].id: duplicate id 'a', first given in auth.keys[0]",
        "run.yaml:7: auth.keys[1].secret: the same secret as auth.keys[0]",
        "run.yaml:8: auth.keys[2].secret: expected text that is not empty",
    ]


@pytest.mark.parametrize("name", ["a/b", "a b", "a:b", "''", "é"])
def test_a_providers_name_holds_no_slash_blank_or_colon(name: str) -> None:
    assert "a provider's name is made of letters" in fault(BASE + f"  {name}: {{type: openai}}")


@pytest.mark.parametrize("name", ["a b", "''", "'gpt-*-*'"])
def test_a_public_name_is_not_empty_and_holds_no_blank_and_one_star(name: str) -> None:
    assert "a public name must not be empty, hold blanks, or" in fault(BASE + f"models: {{{name}: local/tiny}}")


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ("'local/*': local/tiny", "models.local/*: names that begin with 'local/' go to the provider 'local'"),
        ("'local/t*': local/tiny", "models.local/t*: names that begin with 'local/'"),
        ("a: local/*", "models.a: 'local/*': a '*' needs one in the public name 'a' to fill it"),
        ("a*: local/*-*", "models.a*: 'local/*-*': expected at most one '*'"),
        ("a*: {targets: [local/tiny], on_failure: ['zz/*']}", "models.a*.on_failure[0]: no provider is named 'zz'"),
    ],
)
def test_a_star_of_a_target_is_filled_by_that_of_a_name_which_can_be_asked_for(models: str, expected: str) -> None:
    assert expected in fault(BASE + f"models: {{{models}}}")


def test_a_public_name_with_a_star_may_begin_like_a_provider_and_have_targets_without_one() -> None:
    models = "models: {'local*': local/*, '*': {targets: [local/*], on_failure: [local/tiny]}}"
    assert list(load(BASE + models).models) == ["local*", "*"]


def test_a_public_name_may_hold_slashes_and_colons() -> None:
    assert list(load(BASE + "models: {'org/name:tag': local/tiny}").models) == ["org/name:tag"]


@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        ("lokal/tiny", "models.a: no provider is named 'lokal', did you mean 'local'?"),
        ("{targets: [zz/x]}", "models.a.targets[0]: no provider is named 'zz', expected one of: local"),
        ("{targets: [{use: zz/x}]}", "models.a.targets[0].use: no provider is named 'zz', expected one of: local"),
        ("{targets: [local/tiny], on_failure: [zz/x]}", "models.a.on_failure[0]: no provider is named 'zz'"),
        ("local/tinny", "models.a: 'local' has no model 'tinny', did you mean 'tiny'?"),
        ("local/tiny:sql", "models.a: 'local' has no model 'tiny:sql'"),
        ("tiny", "models.a: expected provider/model, as in openai/gpt-5, got 'tiny'"),
        ("{targets: [local/tiny, local/tiny]}", "models.a.targets[1]: 'local/tiny' stands here twice"),
        ("{targets: [local/tiny], on_failure: [local/tiny]}", "models.a.on_failure[0]: 'local/tiny' stands here twice"),
        ("{targets: []}", "models.a.targets: expected at least one entry, got an empty list"),
        ("{}", "models.a.targets: the key is missing"),
    ],
)
def test_a_target_names_a_provider_and_a_model(alias: str, expected: str) -> None:
    assert expected in fault(BASE + f"models: {{a: {alias}}}")


def test_names_that_lead_to_each_other_in_a_circle_are_refused() -> None:
    lines = faults(BASE + "models:\n  a: b\n  b: a\n  c/c: d/d\n  d/d: c/c\n")
    assert lines == [
        "run.yaml:5: models.a: 'b' is itself a name under 'models', expected provider/model",
        "run.yaml:6: models.b: 'a' is itself a name under 'models', expected provider/model",
        "run.yaml:7: models.c/c: 'd/d' is itself a name under 'models', expected provider/model",
        "run.yaml:8: models.d/d: 'c/c' is itself a name under 'models', expected provider/model",
    ]


def test_a_local_model_may_hold_slashes_and_colons() -> None:
    load("version: 1\nproviders: {local: {models: {'org/m:1b': {}}}}\nmodels: {a: 'local/org/m:1b'}")


@pytest.mark.parametrize("type_", ["openai-compatible", "azure", "databricks", "openai-responses"])
def test_a_provider_without_a_default_address_needs_one(type_: str) -> None:
    why = f"the key is missing, a provider of type '{type_}' needs it"
    assert fault(BASE + f"  v: {{type: {type_}}}") == f"run.yaml:4: providers.v.base_url: {why}"


@pytest.mark.parametrize(
    ("server", "entry"),
    [
        ("", "llama.cpp: {}"),
        ("server: {host: 0.0.0.0}\nauth: {keys: [{id: a, secret: s}]}", "llama.cpp: {}"),
        ("server: {admin_port: 9000}", "v: {type: openai-compatible, base_url: 'http://127.0.0.1:9000/v1'}"),
        ("server: {host: '::1', port: 80}", "v: {type: openai-compatible, base_url: 'http://localhost/v1'}"),
    ],
)
def test_a_provider_that_is_the_gateway_itself_is_refused(server: str, entry: str) -> None:
    line = fault(BASE + f"  {entry}\n{server}")
    assert "base_url: 'http://" in line
    assert line.endswith("is the gateway's own address; name that of the provider, or change server.port")


@pytest.mark.parametrize(
    ("type_", "address", "endpoint"),
    [
        ("openai-compatible", "http://h:8000/v1/chat/completions/", "/chat/completions"),
        ("openai-compatible", "http://h:8000/chat/completions", "/chat/completions"),
        ("openai-responses", "http://h/v1/responses", "/responses"),
        ("anthropic", "http://h/v1/messages", "/messages"),
        ("openai", "http://h/v1/embeddings", "/embeddings"),
        ("ollama", "http://h:11434/api/chat", "/api/chat"),
        ("ollama", "http://h:11434/v1", "/v1"),
    ],
)
def test_an_address_ends_before_the_endpoint(type_: str, address: str, endpoint: str) -> None:
    line = fault(BASE + f"  v: {{type: {type_}, base_url: '{address}'}}")
    assert line == f"run.yaml:4: providers.v.base_url: '{endpoint}' is no part of the address, leave it out"


@pytest.mark.parametrize("address", ["http://h/embeddings", "http://h/chat", "http://h/api/chat", "http://h/x/v1"])
def test_a_server_may_lie_below_any_path(address: str) -> None:
    load(BASE + f"  v: {{type: openai-compatible, base_url: '{address}'}}")


@pytest.mark.parametrize(
    ("server", "entry"),
    [
        ("server: {port: 8081}", "llama.cpp: {}"),
        ("server: {port: 0}", "llama.cpp: {}"),
        ("server: {host: 127.0.0.2}", "v: {type: openai-compatible, base_url: 'http://127.0.0.1:8080/v1'}"),
        ("", "v: {type: openai-compatible, base_url: 'http://10.0.0.1:8080/v1'}"),
        ("", "llama.cpp: {enabled: false}"),
    ],
)
def test_another_server_on_the_same_machine_is_none_of_the_gateways(server: str, entry: str) -> None:
    load(BASE + f"  {entry}\n{server}")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("{}", "names no model, expected 'model' or 'models'"),
        ("{model: a, models: {b: {}}}", "'model' and 'models' are both given"),
        ("{modell: x}", "providers.local.modell: unknown key 'modell', did you mean 'model'?"),
        ("{models: {}}", "providers.local: names no model, expected 'model' or 'models'"),
        ("{models: {'a b': {}}}", "a model's name must not be empty or hold blanks"),
    ],
)
def test_the_local_provider_names_its_models(entry: str, expected: str) -> None:
    assert expected in fault(f"version: 1\nproviders: {{local: {entry}}}")


def test_there_is_one_local_provider() -> None:
    assert "a second local provider" in fault(BASE + "  other: {type: local, model: x}")


REMOTE = "version: 1\nproviders:\n  openai: {api_key: sk-test}\nserver: {workers: 2}\n"


@pytest.mark.parametrize(
    "limited",
    [
        "auth: {keys: [{id: a, secret: secret, limits: {rpm: 1}}]}",
        "auth: {keys: [{id: a, secret: secret, limits: {parallel: 1}}]}",
        "models: {m: {targets: [openai/m], limits: {rpm: 1}}}",
        "auth: {keys: [{id: a, secret: secret, team: t}], teams: {t: {limits: {rpm: 1}}}}",
        "auth: {jwt: {issuer: 'https://sso.example.com', audience: a, limits: {rpm: 1}}}",
    ],
)
def test_limits_of_several_processes_need_a_shared_count(limited: str) -> None:
    assert "server.workers: several processes" in fault(REMOTE + limited)
    assert load(REMOTE + limited + "\nshared: {url: 'redis://127.0.0.1'}").server.workers == 2


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        (
            "keys: [{id: a, secret: s, team: serch}]",
            "keys[0].team: 'auth.teams' has no 'serch', did you mean 'search'?",
        ),
        ("jwt: {issuer: 'https://sso', audience: a, team: b}", "jwt.team: 'auth.teams' has no 'b'"),
        ("teams: {'a b': {}}", "a team's name is made of letters"),
    ],
)
def test_a_team_is_one_that_there_is(auth: str, expected: str) -> None:
    teams = "" if auth.startswith("teams") else "teams: {search: {}}, "
    assert expected in fault(f"version: 1\nauth: {{{teams}{auth}}}")


def test_a_claim_for_teams_needs_teams() -> None:
    found = fault("version: 1\nauth: {jwt: {issuer: 'https://sso', audience: a, team_claim: groups}}")
    assert "auth.jwt.team_claim: there are no teams" in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tools: {web_search: 'mcp:docs'}", "tools.web_search: 'mcp' has no 'docs'"),
        (
            "tools: {mcp: {docs: {url: 'http://h/'}}, file_search: 'mcp:dcs/find'}",
            "tools.file_search: 'mcp' has no 'dcs', did you mean 'docs'?",
        ),
        ("tools: {web_search: docs}", "tools.web_search: expected"),
        (
            "tools: {mcp: {a: {command: [x]}}, functions: {a: {use: x}}}",
            "tools.functions.a: 'a' is a name under 'mcp' already",
        ),
        ("tools: {mcp: {'a b': {command: [x]}}}", "a name is made of letters"),
        ("tools: {mcp: {a: {}}}", "expected either 'url' or 'command'"),
        ("tools: {mcp: {a: {command: [x], headers: {h: v}}}}", "'headers' need a 'url'"),
        ("tools: {mcp: {a: {url: 'http://h/', env: {V: v}}}}", "'env' needs a 'command'"),
        ("guardrails: [{regex: x, headers: {h: v}}]", "'headers' need a 'webhook'"),
    ],
)
def test_tools_name_what_is_there(text: str, expected: str) -> None:
    assert expected in fault(BASE + text)
