"""Fixtures that tests of several packages share."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.local.model_source import fetch

_TESTS = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected files of golden tests")


@pytest.fixture(scope="session", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What gateways keep, and the processes that tests start, lies in a folder of this run and not in the user's."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLM_GATEWAY_DATA", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def own_data_folder(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test's gateways keep a database of their own, so that none waits for what another one writes."""
    monkeypatch.setenv("LLM_GATEWAY_DATA", str(data_folder / f"test-{next(_TESTS)}"))


@pytest.fixture(scope="session")
def update_golden(pytestconfig: pytest.Config) -> bool:
    """Whether golden tests write what they get instead of comparing it; a person reads the diff."""
    return bool(pytestconfig.getoption("--update-golden"))


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The built-in small model as a GGUF file; it lies in the user's cache, so it is fetched once per machine."""
    return fetch("smollm2-135m-instruct")
