"""The compose file fits the gateway: its configuration loads, and its services start in an order that works."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.configuration import load

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICES: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
RUN_YAML = (DEPLOY / "run.yaml").read_text()


def test_its_configuration_loads_and_its_ports_lead_there() -> None:
    server = load(RUN_YAML).server
    assert [port.split(":")[-1] for port in SERVICES["gateway"]["ports"]] == [str(server.port), str(server.admin_port)]


def test_a_gateway_that_stops_has_the_time_to_drain() -> None:
    assert float(SERVICES["gateway"]["stop_grace_period"].removesuffix("s")) > load(RUN_YAML).server.drain_s


@pytest.mark.parametrize("service", ["gateway", "migrate"])
def test_every_variable_is_passed_on(service: str) -> None:
    assert set(SERVICES[service]["environment"]) == set(re.findall(r"\$\{([A-Z_]+)\}", RUN_YAML))


@pytest.mark.parametrize(
    ("service", "awaited"),
    [(name, awaited) for name, one in SERVICES.items() for awaited in one.get("depends_on", ())],
)
def test_a_service_waits_for_what_can_come(service: str, awaited: str) -> None:
    match SERVICES[service]["depends_on"][awaited]["condition"]:
        case "service_healthy":
            assert "healthcheck" in SERVICES[awaited]
        case "service_completed_successfully":
            assert "restart" not in SERVICES[awaited]
        case other:
            pytest.fail(other)


def test_postgresql_is_healthy_once_others_reach_it() -> None:
    # The server with which its image sets the database up listens on a socket file alone.
    assert "-h 127.0.0.1" in " ".join(SERVICES["postgres"]["healthcheck"]["test"])
