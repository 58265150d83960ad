"""The images hold what there is, and run it as nobody."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateway.version import VERSION
from tests.deploy.configuration import load

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_a_dockerfile_installs_what_there_is_and_runs_as_nobody_on_the_ports_of_its_configuration(name: str) -> None:
    project = PROJECT["project"]
    joined = (ROOT / "deploy" / name).read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in joined.splitlines() if line and not line.startswith("#")]
    orders = [word for word, _ in lines]
    assert orders[0] == "FROM"
    said = dict(lines)  # the last of each
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", joined)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert json.loads(said["ENTRYPOINT"]) == list(project["scripts"])
    assert said["USER"] == "10001"
    assert f"org.opencontainers.image.version={VERSION} " in said["LABEL"]
    config = load((ROOT / "deploy/run.yaml").read_text())
    assert said["EXPOSE"].split() == [str(config.server.port), str(config.server.admin_port)]
    low, high = re.findall(r"3\.(\d+)", project["requires-python"])
    (version,) = set(re.findall(r"python:3\.(\d+)-slim", joined))
    assert int(low) <= int(version) < int(high)


def test_an_image_is_built_from_what_the_package_is_built_from_and_nothing_else() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    project, packages = PROJECT["project"], PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    needed = {"pyproject.toml", "setup.py", project["readme"], *project["license-files"]}
    needed |= {name.removesuffix("*") for name in packages}
    assert [rule for rule in rules if not rule.startswith(("#", "!"))] == ["*", "**/__pycache__", "**/*.so"]
    assert {rule[1:] for rule in rules if rule.startswith("!")} == needed
