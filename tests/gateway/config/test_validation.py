from pathlib import Path

from gateway.config.validation import in_file
from tests.gateway.config.loading import faults, load
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
