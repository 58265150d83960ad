"""`gateway init`: a first run.yaml, which serves a small local model and says what else can be written."""

import argparse
from pathlib import Path

from gateway.cli.failure import CommandFailed

__all__ = ["EXAMPLE", "FIRST_RUN", "SUMMARY", "add_arguments", "run"]

SUMMARY = "write a first run.yaml"
EXAMPLE = "gateway init"

FIRST_RUN = Path(__file__).with_name("first_run.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing but the configuration: where it is written."""


def run(arguments: argparse.Namespace) -> int:
    try:
        with arguments.config.open("x", encoding="utf-8") as file:
            file.write(FIRST_RUN.read_text(encoding="utf-8"))
    except FileExistsError:
        raise CommandFailed(f"{arguments.config}: there is such a file already, and it stays as it is") from None
    except OSError as error:
        raise CommandFailed(f"{arguments.config}: cannot be written: {error.strerror}") from None
    print(f"wrote {arguments.config}; start it with:  gateway --config {arguments.config}")
    return 0
