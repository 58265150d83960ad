"""Guardrails of installed packages."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.config.sections.tools import Guardrail as Section
from gateway.guardrails.guardrails import ENTRY_POINT_GROUP, build_guardrails


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that brings the guardrail `acme`."""
    (tmp_path / "acme_guardrail.py").write_text("def build(strict=False):\n    return object()\n")
    metadata = tmp_path / "acme_guardrail-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-guardrail\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nacme = acme_guardrail:build\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("acme_guardrail", None)


@pytest.mark.usefixtures("package")
def test_a_package_brings_a_guardrail() -> None:
    built = build_guardrails([Section(use="acme", options={"strict": True})])
    assert built is not None
    assert len(built.inputs) == 1


@pytest.mark.usefixtures("package")
def test_what_no_package_brings_or_takes_is_told_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"guardrails\[0\]\.use: no installed package brings a guardrail 'nope'"):
        build_guardrails([Section(use="nope")])
    with pytest.raises(ValueError, match=r"guardrails\[0\]\.options: .*'color'"):
        build_guardrails([Section(use="acme", options={"color": 1})])
