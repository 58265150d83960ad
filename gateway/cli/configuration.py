"""The configuration that a command works with, and where the gateway that it describes can be called."""

import argparse
import os
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.cli.failure import CommandFailed

if TYPE_CHECKING:
    from gateway.config import Config

__all__ = ["Endpoint", "add_config", "client_key", "endpoint", "endpoint_at", "load", "warn_of_no_provider"]

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_FILE, _BY_FILE = "unix:", "http://localhost"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a gateway can be called. `trust` None: what the system trusts; `socket_file` None: by its address."""

    url: str
    trust: ssl.SSLContext | None = None
    socket_file: str | None = None

    @property
    def name(self) -> str:
        """For people."""
        return self.url if self.socket_file is None else f"{_FILE}{self.socket_file}"


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


def endpoint(config: "Config") -> Endpoint:
    """That of the gateway that runs with this configuration on this machine. Raises CommandFailed."""
    server = config.server
    if server.unix is not None:
        return Endpoint(f"{_BY_FILE}{server.path_prefix}/v1", socket_file=server.unix)
    host = _ANY.get(server.host, server.host)
    scheme = "http" if server.tls is None else "https"
    place = f"[{host}]" if ":" in host else host
    return Endpoint(f"{scheme}://{place}:{server.port}{server.path_prefix}/v1", _trust(config))


def endpoint_at(given: str) -> Endpoint:
    """That of an address: one that names a host alone means its /v1, `unix:FILE` or `unix:FILE:/PATH` a socket file.

    Raises CommandFailed for what is no address.
    """
    file = None
    if given.startswith(_FILE):
        file, _, path = given[len(_FILE) :].partition(":/")
        given = f"{_BY_FILE}/{path}"
    elif urlsplit(given).scheme not in ("http", "https"):
        raise CommandFailed(f"{given}: expected an http:// or https:// address, or unix:FILE")
    return Endpoint(
        given.rstrip("/") if urlsplit(given).path.strip("/") else f"{given.rstrip('/')}/v1", socket_file=file
    )


def _trust(config: "Config") -> ssl.SSLContext | None:
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


def client_key(config: "Config") -> str | None:
    """A key that this configuration lets in, one for all models if there is one; None if no key is asked for."""
    keys = config.auth.keys if config.auth else ()
    for key in sorted(keys, key=lambda key: "*" not in key.models):
        return key.secret.get_secret_value()
    return None
