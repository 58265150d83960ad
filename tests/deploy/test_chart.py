"""The Helm chart fits the gateway, and its templates fit its values."""

import re
from pathlib import Path
from typing import Any

import yaml

from gateway.version import VERSION
from tests.deploy.configuration import load

CHART = Path(__file__).parents[2] / "deploy/helm/llm-gateway"
TEMPLATES = "\n".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_configuration_of_the_chart_loads_and_names_the_ports_that_its_templates_ask_for() -> None:
    server = load(yaml.safe_dump(VALUES["config"])).server
    assert VALUES["config"]["server"].items() >= {"port": server.port, "admin_port": server.admin_port}.items()


def test_a_pod_that_goes_has_the_time_to_be_forgotten_and_to_drain() -> None:
    drain_s = load(yaml.safe_dump(VALUES["config"])).server.drain_s
    assert VALUES["terminationGracePeriodSeconds"] > VALUES["preStopSeconds"] + drain_s


def test_the_chart_is_of_this_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == VERSION


def test_the_templates_name_values_and_parts_that_exist() -> None:
    asked = set(re.findall(r"\.Values((?:\.\w+)+)", TEMPLATES))
    for path in asked:
        found: Any = VALUES
        for step in path[1:].split("."):
            assert step in found, path
            found = found[step]
    assert {path.split(".")[1] for path in asked} == set(VALUES)
    defined = set(re.findall(r'define "([\w.-]+)"', TEMPLATES))
    assert set(re.findall(r'include "([\w.-]+)"', TEMPLATES)) == defined
    opened = re.findall(r"{{-? (?:if|with|range|define) ", TEMPLATES)
    assert len(opened) == len(re.findall(r"{{-? end -?}}", TEMPLATES))
