"""Finding provider types by name, without importing what is not asked for."""

import subprocess
import sys
from pathlib import Path

import pytest

from providers.base import ProviderSettings
from providers.registry import ENTRY_POINT_GROUP, UnknownProviderType, build, provider_types
from providers.remote.openai_compatible import OpenAICompatible
from providers.testing.scripted import ScriptedProvider


def scripted(settings: ProviderSettings) -> ScriptedProvider:
    return ScriptedProvider(settings.name)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package offers the types `acme` and `openai`: its metadata lie on the path, as installed."""
    metadata = tmp_path / "acme_provider-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-provider\nVersion: 1.0\n")
    lines = [f"{name} = {__name__}:scripted" for name in ("acme", "openai")]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINT_GROUP}]", *lines]))
    monkeypatch.syspath_prepend(tmp_path)


def test_the_types_are_local_and_the_vendors() -> None:
    assert {"local", "openai", "openai-compatible", "vllm", "openrouter"} <= provider_types()


def test_listing_types_imports_no_heavy_module() -> None:
    code = (
        "import sys, providers.registry as r; r.provider_types();"
        "print([m for m in ('torch', 'aiohttp', 'providers.local', 'pydantic') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_building_a_vendor_gives_its_provider_without_opening_anything() -> None:
    provider = build(ProviderSettings(name="cloud", type="openai", api_key="k"))
    assert isinstance(provider, OpenAICompatible)
    assert provider.name == "cloud"


def test_a_type_whose_extra_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("torch", "gguf"):
        monkeypatch.setitem(sys.modules, package, None)  # which makes an import of it fail
    with pytest.raises(ImportError, match=r"^providers\.mine: needs torch, gguf: pip install '.*\[local\]'$"):
        build(ProviderSettings(name="mine", type="local"))


def test_an_unknown_type_names_the_nearest_one() -> None:
    with pytest.raises(UnknownProviderType, match="unknown provider type 'openia', did you mean 'openai'"):
        build(ProviderSettings(name="x", type="openia"))


def test_a_type_like_no_other_gets_the_whole_list() -> None:
    with pytest.raises(UnknownProviderType, match=r"expected one of: .*openai-compatible"):
        build(ProviderSettings(name="x", type="zzzzzz"))


@pytest.mark.usefixtures("installed")
def test_an_entry_point_adds_a_type() -> None:
    assert "acme" in provider_types()
    assert isinstance(build(ProviderSettings(name="x", type="acme")), ScriptedProvider)


@pytest.mark.usefixtures("installed")
def test_an_entry_point_cannot_take_a_built_in_name() -> None:
    assert isinstance(build(ProviderSettings(name="x", type="openai", api_key="k")), OpenAICompatible)
