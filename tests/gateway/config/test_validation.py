from pathlib import Path

import pytest

from gateway.config.validation import in_file
from tests.gateway.config.loading import fault, faults, load
from tests.gateway.config.test_sections import ENV, EVERYTHING


def test_the_whole_format_is_known_and_nothing_of_it_is_refused() -> None:
    lines = faults(EVERYTHING, {**ENV, "GEMINI_API_KEY": "x"}, Path("run.yaml"))
    why = "cannot be read: No such file or directory"
    assert lines == [
        f"run.yaml:19: providers.claude.api_key: the file '/nowhere/anthropic' {why}",
        f"run.yaml:76: prices.file: prices.yaml: {why}",
    ]


def test_a_value_that_asks_for_nothing_is_taken() -> None:
    load(
        """
        version: 1
        server: {workers: 1, admin_port: , dialect: openai, cors: [], tls: , request_templates: false}
        auth: {pass_through: false, jwt: }
        providers:
          local: {tensor_parallel: 1, deterministic: false, kv_cache: {dtype: auto},
                  models: {tiny: {weights: auto, adapters: {}, speculative: }}}
        models: {a: {targets: [{use: local/tiny, weight: 1, tags: []}], strategy: ordered, hedge_s: 0, shadow: ,
                     on_context_overflow: [], on_content_filter: []}}
        reliability: {breaker: {failures: 5, window_s: 30, open_s: 15}}
        guardrails: []
        telemetry: {prometheus: false, content: off}
        responses:
        """
    )


def test_the_place_of_a_fault_leaves_out_the_names_of_branches() -> None:
    assert in_file(("providers", "a", "RemoteProvider", "type"), {"providers": {"a": {"type": 1}}}) == (
        "providers",
        "a",
        "type",
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("providers: {openai: sk-1}", "providers.openai"),
        ("providers: {openai: {headers: Bearer sk-1}}", "providers.openai.headers"),
        ("auth: {keys: [sk-1]}", "auth.keys[0]"),
        ("auth: {keys: sk-1}", "auth.keys"),
        ("storage: postgresql://ann:sk-1@db/gateway", "storage"),
    ],
)
def test_a_text_where_something_else_is_due_may_be_a_secret_and_is_not_told(text: str, place: str) -> None:
    line = fault(f"version: 1\n{text}")
    assert line.startswith(f"run.yaml:2: {place}: expected ")
    assert line.endswith(", got text")


def test_a_key_of_an_entry_that_stands_beside_the_entries_is_told_as_such() -> None:
    lines = faults("version: 1\nproviders:\n  openai:\n  api_key: sk-1\n")
    assert lines[1].startswith("run.yaml:4: providers.api_key: expected a mapping")
    assert lines[1].endswith("got text; is 'api_key' a key of the entry above it? Then it stands further right")
    assert not fault("version: 1\nproviders: {openai: 5}").endswith("right")


def test_a_port_is_no_part_of_the_host() -> None:
    line = fault("version: 1\nserver: {host: '127.0.0.1:8080'}\nproviders: {local: {model: tiny}}")
    assert line == "run.yaml:2: server.host: expected an address alone; its port stands in 'port'"
    load("version: 1\nserver: {host: '::1'}\nproviders: {local: {model: tiny}}")
