"""What the packages need besides code is in the wheel."""

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SETUPTOOLS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
SOURCES_OF_LIBRARIES = "local_engine/kernels/cpu/src"
MADE_HERE = ("__pycache__", SOURCES_OF_LIBRARIES)


def test_every_file_of_a_package_that_is_no_code_is_in_the_wheel() -> None:
    data: dict[str, list[str]] = SETUPTOOLS["package-data"]
    shipped = {
        found
        for package, patterns in data.items()
        for folder in ([Path(package.replace(".", "/"))] if package != "*" else packages())
        for pattern in patterns
        for found in (ROOT / folder).glob(pattern)
    }
    kept = {
        path
        for top in SETUPTOOLS["packages"]["find"]["include"]
        for path in (ROOT / top.removesuffix("*")).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".so") and not any(one in str(path) for one in MADE_HERE)
    }
    assert kept == {path for path in shipped if path in kept}
    assert len(kept) > 10


def packages() -> set[Path]:
    tops = [name.removesuffix("*") for name in SETUPTOOLS["packages"]["find"]["include"]]
    return {found.parent.relative_to(ROOT) for top in tops for found in (ROOT / top).rglob("__init__.py")}
