"""The configuration that a command works with, and where the gateway that it describes can be called."""

import argparse
import os
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.cli.failure import CommandFailed

if TYPE_CHECKING:
    from gateway.config import Config

__all__ = ["add_config", "address", "base_url", "client_key", "load", "trust", "warn_of_no_provider"]

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
        hint = "; 'gateway init' writes one" if isinstance(error.__cause__, FileNotFoundError) else ""
        raise CommandFailed(f"{error}{hint}") from None


def warn_of_no_provider(config: "Config") -> None:
    """One line on stderr where nothing can be called."""
    if not config.providers:
        print("gateway: no provider is switched on, so no model can be called", file=sys.stderr)


def address(config: "Config") -> str:
    """The base URL of the gateway that runs with this configuration on this machine."""
    host = _ANY.get(config.server.host, config.server.host)
    scheme = "http" if config.server.tls is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{config.server.port}/v1"


def trust(config: "Config") -> ssl.SSLContext | None:
    """What takes the certificate of this configuration, and no other one, whatever name it is for: the gateway is
    called on this machine. None: it serves no HTTPS. Raises CommandFailed."""
    if config.server.tls is None:
        return None
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cafile=config.server.tls.cert)
    except OSError as error:  # ssl.SSLError is one
        raise CommandFailed(f"server.tls.cert: {config.server.tls.cert} holds no readable certificate") from error
    return context


def base_url(given: str) -> str:
    """The address that calls go below: one that names a host alone means its /v1."""
    return given.rstrip("/") if urlsplit(given).path.strip("/") else f"{given.rstrip('/')}/v1"


def client_key(config: "Config") -> str | None:
    """A key that this configuration lets in, one for all models if there is one; None if no key is asked for."""
    keys = config.auth.keys if config.auth else ()
    for key in sorted(keys, key=lambda key: "*" not in key.models):
        return key.secret.get_secret_value()
    return None
