"""What stands under deploy/ fits the gateway: configurations load, and the dashboard asks for metrics that exist."""

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from gateway.config import Config, parse_config
from gateway.telemetry import names
from gateway.telemetry.exposition import exposition
from gateway.telemetry.names import Name, prometheus_name
from gateway.telemetry.series import AttemptSeries, RequestSeries, Snapshot
from local_engine.encoding import EncoderStats
from local_engine.generation import EngineStats
from providers.local.measures import OF_THE_MOMENT
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


CHART = DEPLOY / "helm/llm-gateway"
TEMPLATES = "\n".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))


def test_the_templates_of_the_chart_name_values_and_parts_that_exist() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    asked = set(re.findall(r"\.Values((?:\.\w+)+)", TEMPLATES))
    assert len(asked) > 15
    for path in asked:
        found = values
        for step in path[1:].split("."):
            assert step in found, path
            found = found[step]
    defined = set(re.findall(r'define "([\w.-]+)"', TEMPLATES))
    assert set(re.findall(r'include "([\w.-]+)"', TEMPLATES)) == defined
    opened = re.findall(r"{{-? (?:if|with|range|define) ", TEMPLATES)
    assert len(opened) == len(re.findall(r"{{-? end -?}}", TEMPLATES))


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_a_dockerfile_installs_what_there_is_and_runs_as_nobody_on_the_ports_of_its_configuration(name: str) -> None:
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    joined = (DEPLOY / name).read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in joined.splitlines() if line and not line.startswith("#")]
    orders = [word for word, _ in lines]
    assert orders[0] == "FROM"
    said = dict(lines)  # the last of each
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", joined)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert json.loads(said["ENTRYPOINT"]) == list(project["scripts"])
    assert said["USER"] == "10001"
    config = load((DEPLOY / "run.yaml").read_text())
    assert said["EXPOSE"].split() == [str(config.server.port), str(config.server.admin_port)]
    low, high = re.findall(r"3\.(\d+)", project["requires-python"])
    (version,) = set(re.findall(r"python:3\.(\d+)-slim", joined))
    assert int(low) <= int(version) < int(high)


def known_metrics() -> set[str]:
    series = RequestSeries(ended={(200, ""): 1}, cost_usd=1.0, cache={"hit": 1}, cached_tokens=1)
    for histogram in (series.duration, series.queue, series.ttft, series.tpot, series.prompt, series.completion):
        histogram.observe(1)
    attempts = AttemptSeries(ended={("first", "answered", ""): 1})
    attempts.duration.observe(1)
    text = exposition(Snapshot({("r", "m", "p", "k"): series}, {("p", "m"): attempts})).decode()
    gauges = {prometheus_name(each) for each in vars(names).values() if isinstance(each, Name)}
    engine = {
        f"{prometheus_name(names.ENGINE)}_{field.name}" + ("_total" if field.name not in OF_THE_MOMENT else "")
        for kind in (EngineStats, EncoderStats)
        for field in fields(kind)
    }
    return {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")} | gauges | engine


@pytest.mark.parametrize("panel", json.loads((DEPLOY / "grafana/gateway.json").read_text())["panels"])
def test_the_dashboard_asks_for_metrics_that_exist(panel: dict[str, list[dict[str, str]]]) -> None:
    known = known_metrics()
    for target in panel["targets"]:
        expression = re.sub(r"by \([^)]*\)", "", target["expr"])
        asked = set(re.findall(r"\b(?:gateway|gen_ai)_\w+(?=[{\[)])", expression))
        assert asked
        for name in asked:
            assert name in known, name
