"""The documents name what is there: pages, folders, modules."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "bench").glob("*/README.md"))]


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: str(page.name))
def test_the_readme_leads_to_every_page(page: Path) -> None:
    assert f"](docs/{page.name})" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
        found = page.parent / target if target else page
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"(?m)^#+ (.*)$", found.read_text(encoding="utf-8"))
            assert anchor in {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}, anchor


def test_every_package_stands_in_the_table_of_the_architecture() -> None:
    named = set(re.findall(r"`([\w/]+)`", ARCHITECTURE.partition("## Where things live")[2].partition("\n## ")[0]))
    for top in ("adapters", "providers", "local_engine", "gateway"):
        packages = {one.parent.relative_to(ROOT / top).as_posix() for one in (ROOT / top).glob("*/__init__.py")}
        missing = {name for name in packages if f"{top}/{name}" not in named and name not in named}
        assert missing == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_and_folders_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:adapters|providers|local_engine|gateway|bench|deploy|tests)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`((?:server|routing)/[\w/]+\.py)`", text):
        assert (ROOT / "gateway" / path).exists(), path
