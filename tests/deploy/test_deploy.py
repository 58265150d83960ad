"""What stands under deploy/ fits the gateway: configurations load, and the dashboard asks for metrics that exist."""

import json
import re
from pathlib import Path

import pytest
import yaml

from gateway.config import Config, parse_config
from gateway.telemetry import names
from gateway.telemetry.exposition import exposition
from gateway.telemetry.names import Name, prometheus_name
from gateway.telemetry.series import AttemptSeries, RequestSeries, Snapshot
from providers.registry import provider_types

DEPLOY = Path(__file__).parents[2] / "deploy"
ENV = dict.fromkeys(("OPENAI_API_KEY", "TEAM_A_KEY", "ADMIN_KEY", "KEY_PEPPER", "POSTGRES_PASSWORD"), "")
VALUES = {name: f"value-of-{name.lower()}" for name in ENV}


def load(text: str) -> Config:
    return parse_config(text, VALUES, provider_types=provider_types())


def test_the_configuration_of_the_compose_file_loads() -> None:
    config = load((DEPLOY / "run.yaml").read_text())
    assert config.server.admin_port == 9090


def test_the_compose_file_passes_every_variable_on() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    named = set(re.findall(r"\$\{([A-Z_]+)\}", (DEPLOY / "run.yaml").read_text()))
    for service in ("gateway", "migrate"):
        assert set(services[service]["environment"]) == named


def test_the_configuration_of_the_chart_loads_on_its_ports() -> None:
    values = yaml.safe_load((DEPLOY / "helm/llm-gateway/values.yaml").read_text())
    config = load(yaml.safe_dump(values["config"]))
    assert (config.server.port, config.server.admin_port) == (values["port"], values["adminPort"])
    assert values["terminationGracePeriodSeconds"] > config.server.drain_s


def known_metrics() -> set[str]:
    series = RequestSeries(ended={(200, ""): 1}, cost_usd=1.0, cache={"hit": 1}, cached_tokens=1)
    for histogram in (series.duration, series.queue, series.ttft, series.tpot, series.prompt, series.completion):
        histogram.observe(1)
    attempts = AttemptSeries(ended={("first", "answered", ""): 1})
    attempts.duration.observe(1)
    text = exposition(Snapshot({("r", "m", "p", "k"): series}, {("p", "m"): attempts})).decode()
    gauges = {prometheus_name(each) for each in vars(names).values() if isinstance(each, Name)}
    return {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")} | gauges


@pytest.mark.parametrize("panel", json.loads((DEPLOY / "grafana/gateway.json").read_text())["panels"])
def test_the_dashboard_asks_for_metrics_that_exist(panel: dict[str, list[dict[str, str]]]) -> None:
    known = known_metrics()
    for target in panel["targets"]:
        expression = re.sub(r"by \([^)]*\)", "", target["expr"])
        asked = set(re.findall(r"\b(?:gateway|gen_ai)_\w+(?=[{\[)])", expression))
        assert asked
        for name in asked:
            assert name in known or name.startswith("gateway_engine_"), name
