"""`gateway config`: the resolved configuration, secrets hidden; or the JSON Schema of run.yaml."""

import argparse
import sys

from gateway.cli.configuration import load

__all__ = ["EXAMPLE", "SUMMARY", "add_arguments", "run"]

SUMMARY = "print the configuration resolved, secrets hidden"
EXAMPLE = "gateway config --config run.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of run.yaml instead")


def run(arguments: argparse.Namespace) -> int:
    if arguments.schema:
        from gateway.config.json_schema import SCHEMA_FILE

        sys.stdout.write(SCHEMA_FILE.read_text(encoding="utf-8"))
        return 0
    config = load(arguments.config)
    from gateway.config.printing import render_config

    sys.stdout.write(render_config(config))
    return 0
