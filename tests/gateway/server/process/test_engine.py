"""The local models' process: a reload brings the new ones beside the old ones, which go when nobody uses them."""

from pathlib import Path

import pytest

from adapters.canonical.errors import InvalidRequest
from gateway.config import Config, parse_config
from gateway.engine_process.proxy import EngineProxy
from gateway.server.inheritance import NOTHING
from gateway.server.process import engine
from gateway.server.process.engine import Hosts, with_engine
from gateway.server.process.siblings import Siblings
from providers.base import ReadinessState
from tests.gateway.server.running import until

FIRST, SECOND = "tiny: {source: ./a.gguf}", "tiny: {source: ./b.gguf}"


def config(models: str) -> Config:
    text = f"version: 1\nproviders: {{local: {{type: local, device: cpu, models: {{{models}}}}}}}\n"
    return parse_config(text, {}, provider_types=["local"])


def proxy_of(found: Config, siblings: Siblings) -> EngineProxy:
    proxy = with_engine(found, NOTHING, siblings).providers["local"]
    assert isinstance(proxy, EngineProxy)
    return proxy


def failed(proxy: EngineProxy, why: str) -> bool:
    """Whether the one model, whose file is not there, is known to have failed for that."""
    readiness = proxy.readiness("tiny")
    return readiness.state is ReadinessState.FAILED and why in (readiness.reason or "")


async def test_both_are_served_until_everybody_has_turned_to_the_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_LOOK_S", 0.02)
    siblings = Siblings(tmp_path, 0, 2, 0, has_engine=True)
    now = config(FIRST)
    hosts = Hosts(siblings, lambda: now)
    await hosts.take(now)
    old = proxy_of(now, siblings)
    await old.start()
    await until(lambda: failed(old, "a.gguf"), within_s=60)
    now = config(SECOND)
    await hosts.reload()
    await hosts.reload()  # as every process asks for it
    assert hosts.count == 2
    new = proxy_of(now, siblings)
    await new.start()
    await until(lambda: failed(new, "b.gguf"), within_s=60)
    assert failed(old, "a.gguf")
    await old.aclose()
    await until(lambda: hosts.count == 1, within_s=5)
    assert failed(new, "b.gguf")
    await new.aclose()
    await hosts.aclose()


async def test_a_file_that_is_wrong_changes_nothing(tmp_path: Path) -> None:
    siblings = Siblings(tmp_path, 0, 2, 0, has_engine=True)

    def load() -> Config:
        raise ValueError("models: no")

    hosts = Hosts(siblings, load)
    await hosts.take(config(FIRST))
    with pytest.raises(InvalidRequest, match="models: no"):
        await hosts.reload()
    assert hosts.count == 1
    await hosts.aclose()


def test_the_order_of_the_models_makes_no_other_models(tmp_path: Path) -> None:
    siblings = Siblings(tmp_path, 0, 2, 0, has_engine=True)
    one = proxy_of(config("a: {}, b: {context: 5}"), siblings)
    other = proxy_of(config("b: {context: 5}, a: {}"), siblings)
    assert one._path == other._path
    assert proxy_of(config("a: {}"), siblings)._path != one._path


def test_models_that_no_process_could_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"providers\.local: the first local models need a restart"):
        with_engine(config(FIRST), NOTHING, Siblings(tmp_path, 0, 2, 0))
