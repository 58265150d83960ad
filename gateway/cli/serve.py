"""`gateway serve`: run the server."""

import argparse
import sys

from gateway.cli.configuration import load, warn_of_no_provider

__all__ = ["EXAMPLE", "SUMMARY", "add_arguments", "run"]

SUMMARY = "run the server"
EXAMPLE = "gateway serve --config run.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing but the configuration."""


def run(arguments: argparse.Namespace) -> int:
    config = load(arguments.config)
    for name, why in config.off.items():
        print(f"gateway: provider {name} is off: {why}", file=sys.stderr)
    warn_of_no_provider(config)
    from gateway.server.process.run import serve

    return serve(config, config_path=arguments.config)
