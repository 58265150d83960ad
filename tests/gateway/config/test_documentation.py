"""The user's reference and the repository's own run.yaml say what the code does."""

import re
from pathlib import Path

from gateway.config import load_config
from gateway.config.sections.local import KvCache, LocalModel, LocalProvider, Scheduler
from gateway.config.sections.models import Alias, Shadow, Target
from gateway.config.sections.providers import RemoteProvider
from gateway.config.sections.reliability import Breaker, Retry, Timeouts
from gateway.config.sections.section import Section
from gateway.config.sections.server import Server
from gateway.config.sections.telemetry import Telemetry
from providers.registry import provider_types

ROOT = Path(__file__).parents[3]
REFERENCE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
SECTIONS: dict[type[Section], str] = {
    Server: "server.",
    RemoteProvider: "providers.*.",
    LocalProvider: "providers.*.",
    LocalModel: "providers.*.models.*.",
    KvCache: "providers.*.kv_cache.",
    Scheduler: "providers.*.scheduler.",
    Alias: "models.*.",
    Target: "models.*.targets.*.",
    Shadow: "models.*.shadow.",
    Timeouts: "reliability.timeouts.",
    Retry: "reliability.retry.",
    Breaker: "reliability.breaker.",
    Telemetry: "telemetry.",
}


def test_the_own_run_yaml_loads_and_points_editors_to_the_schema() -> None:
    path = ROOT / "run.yaml"
    assert list(load_config(path, {}, provider_types=provider_types()).providers) == ["local"]
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert (ROOT / first.partition("$schema=")[2]).is_file()


def test_the_commented_examples_of_the_own_run_yaml_load(tmp_path: Path) -> None:
    text = (ROOT / "run.yaml").read_text(encoding="utf-8")
    examples = re.sub(r"(?m)^( *)# (?=( *)(openai|my-server|models|fast|smart):)", r"\1", text)
    path = tmp_path / "run.yaml"
    path.write_text(examples)
    config = load_config(path, {"OPENAI_API_KEY": "sk-test"}, provider_types=provider_types())
    assert set(config.providers) == {"local", "openai", "my-server"}
    assert set(config.models) == {"fast", "smart"}


def test_every_key_that_works_stands_in_the_reference() -> None:
    missing = [
        f"{prefix}{name}"
        for section, prefix in SECTIONS.items()
        for name in section.model_fields
        if f"{name}`" not in REFERENCE
    ]
    nested = {"providers.*.kv_cache", "providers.*.scheduler", "models.*.shadow"}
    assert set(missing) - nested == set()


def test_the_reference_names_every_provider_type_that_is_built_in() -> None:
    for kind in provider_types():
        assert f"`{kind}`" in REFERENCE
