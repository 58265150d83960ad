"""The user's reference and the repository's own run.yaml say what the code does."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from gateway.config import load_config
from gateway.config.prices import PriceRow
from gateway.config.sections.run_file import RunFile
from gateway.config.sections.section import Section
from providers.registry import provider_types

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
REFERENCE = (DOCS / "configuration.md").read_text(encoding="utf-8")


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


def sections_in(annotation: object) -> Iterator[type[Section]]:
    """The kinds of sections that a field's type holds."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in get_args(annotation):
        yield from sections_in(argument)


def keys_below(section: type[Section]) -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield name
        for inner in sections_in(field.annotation):
            yield from keys_below(inner)


def words_about(key: str) -> set[str]:
    """All that stands as code under the key's own heading (`models` has that of `models.*` below it), and on the pages
    that are named there."""
    own = re.findall(rf"(?ms)^### {key}(?:\.\w+)?\n(.*?)(?=^##)", REFERENCE)
    assert own, f"docs/configuration.md has no heading for {key}"
    pages = [(DOCS / page).read_text(encoding="utf-8") for page in re.findall(r"\]\((\S+?\.md)\)", "".join(own))]
    spans = re.findall(r"`[^`\n]+`|(?m:^ {4}.*$)", "\n".join([*own, *pages]))
    return set(re.findall(r"\w+", " ".join(spans)))


@pytest.mark.parametrize("key", [name for name in RunFile.model_fields if name != "version"])
def test_every_key_stands_in_the_reference(key: str) -> None:
    below = {name for section in sections_in(RunFile.model_fields[key].annotation) for name in keys_below(section)}
    rows = set(PriceRow.model_fields) if key == "prices" else set()
    assert (below | rows) - words_about(key) == set()


def test_the_reference_names_every_provider_type_that_is_built_in() -> None:
    for kind in provider_types():
        assert f"`{kind}`" in REFERENCE
