"""The configuration that a command works with, and where the gateway that it describes can be called."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.failure import CommandFailed

if TYPE_CHECKING:
    from gateway.config import Config

__all__ = ["add_config", "address", "client_key", "load"]

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def add_config(parser: argparse.ArgumentParser, *, default: object) -> None:
    """The option that names the file."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", default=default, help="the configuration (default: ./run.yaml)"
    )


def load(path: Path) -> "Config":
    """The configuration in the file. Raises CommandFailed with a line for everything that is wrong."""
    from gateway.config import ConfigError, load_config
    from providers.registry import provider_types

    try:
        return load_config(path, os.environ, provider_types=provider_types())
    except ConfigError as error:
        raise CommandFailed(str(error)) from None


def address(config: "Config") -> str:
    """The base URL of the gateway that runs with this configuration on this machine."""
    host = _ANY.get(config.server.host, config.server.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{config.server.port}/v1"


def client_key(config: "Config") -> str | None:
    """A key that this configuration lets in, one for all models if there is one; None if no key is asked for."""
    keys = config.auth.keys if config.auth else ()
    for key in sorted(keys, key=lambda key: "*" not in key.models):
        return key.secret.get_secret_value()
    return None
