"""Fixtures that tests of several packages share."""

from pathlib import Path

import pytest

from providers.local.model_source import fetch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected files of golden tests")


@pytest.fixture(scope="session")
def update_golden(pytestconfig: pytest.Config) -> bool:
    """Whether golden tests write what they get instead of comparing it; a person reads the diff."""
    return bool(pytestconfig.getoption("--update-golden"))


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The built-in small model as a GGUF file; it lies in the user's cache, so it is fetched once per machine."""
    return fetch("smollm2-135m-instruct")
