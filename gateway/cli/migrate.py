"""`gateway migrate`: bring the database up to date."""

import argparse

from gateway.cli.configuration import load
from gateway.cli.failure import CommandFailed

__all__ = ["EXAMPLE", "SUMMARY", "add_arguments", "run"]

SUMMARY = "bring the database up to date"
EXAMPLE = "gateway migrate --config run.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing but the configuration."""


def run(arguments: argparse.Namespace) -> int:
    config = load(arguments.config)
    from adapters.canonical.errors import NotReady
    from gateway.config import Redactor
    from gateway.storage.migrate import migrate
    from gateway.storage.place import MemoryPlace, parse_place

    storage = config.run.storage
    place = parse_place(storage.url.get_secret_value() if storage is not None else None)
    if isinstance(place, MemoryPlace):
        raise CommandFailed(f"{arguments.config}: storage.url is memory, there is nothing to bring up to date")
    try:
        before, after = migrate(place)
    except NotReady as error:
        why = Redactor(config.secrets)(str(error.__cause__ or error)).splitlines()[0]
        raise CommandFailed(f"the database can't be used: {why}") from None
    except ImportError as error:
        raise CommandFailed(str(error)) from None
    print(f"the database is at {after}" + ("" if before == after else f", it was {before or 'empty'}"))
    return 0
