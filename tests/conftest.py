"""Fixtures that tests of several packages share."""

import gc
import itertools
import json
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from adapters.openai.responses.event_log import EventLog
from adapters.openai.responses.wire_events import ResponseEvent
from providers.local.model_source import fetch
from tests.adapters.openai.responses.event_order import check_events

settings.register_profile("gateway", deadline=None)  # a machine that does other things as well is no defect
settings.load_profile("gateway")
_TESTS = itertools.count()
_LAST_EVENTS = (b'"type":"response.completed"', b'"type":"response.incomplete"', b'"type":"response.failed"')


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected files of golden tests")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Tests and libraries are a million objects that stay: no garbage collection has to go through them."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    return found


def pytest_unconfigure() -> None:
    gc.unfreeze()


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


@pytest.fixture(autouse=True)
def every_response_is_checked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever events a response of the Responses API tells in a test, they are checked once it has ended."""
    told: dict[int, tuple[EventLog, list[bytes]]] = {}
    take = EventLog.take

    def seen(log: EventLog) -> list[ResponseEvent]:
        events = take(log)
        told.setdefault(id(log), (log, []))[1].extend([event.data for event in events])
        return events

    monkeypatch.setattr(EventLog, "take", seen)
    yield
    for _, events in told.values():
        if events and any(name in events[-1] for name in _LAST_EVENTS):
            check_events([json.loads(event) for event in events])


@pytest.fixture(scope="session")
def update_golden(pytestconfig: pytest.Config) -> bool:
    """Whether golden tests write what they get instead of comparing it; a person reads the diff."""
    return bool(pytestconfig.getoption("--update-golden"))


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The built-in small model as a GGUF file; it lies in the user's cache, so it is fetched once per machine."""
    return fetch("smollm2-135m-instruct")
