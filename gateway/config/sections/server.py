"""`server:`: the address, the limits at the door, and how clients are spoken to."""

import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gateway.config.sections.section import Amount, LocalPath, Section, Unsupported

__all__ = ["Server", "Tls", "is_loopback"]

Port = Annotated[int, Field(ge=0, le=65535)]


FileMode = Annotated[str, Field(pattern=r"^[0-7]{3}$")]


PathPrefix = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")]


def _host(value: str) -> str:
    if not value or not value.isascii() or any(char.isspace() or char in "/@[]" for char in value):
        raise ValueError("expected an IP address or a host name, without brackets")
    if value.count(":") == 1:
        raise ValueError("expected an address alone; its port stands in 'port'")
    return value


def is_loopback(host: str) -> bool:
    """Whether the name or IP address is one that only this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _origin(value: str) -> str:
    scheme, found, host = value.partition("://")
    if value != "*" and not (found and scheme in ("http", "https") and host and "/" not in host.rstrip("/")):
        raise ValueError('expected an origin such as "https://app.example.com", or "*"')
    return value.rstrip("/")


Origin = Annotated[str, AfterValidator(_origin)]
"""Scheme, host and port of a page, or `*`."""


def _network(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise ValueError(f'expected an IP address or a network such as "10.0.0.0/8": {error}') from None


Network = Annotated[str, AfterValidator(_network)]
"""IP addresses, as `10.0.0.0/8`; a single one needs no length."""


class Tls(Section):
    cert: LocalPath = Field(description="PEM file of the certificate chain.")
    key: LocalPath = Field(description="PEM file of the private key.")
    client_ca: LocalPath | None = Field(
        default=None, description="PEM file of authorities: clients must show a certificate of one of them."
    )


class Server(Section):
    host: Annotated[str, AfterValidator(_host)] = Field(
        default="127.0.0.1", description="Address to listen on. One that is not loopback needs `auth`."
    )
    unix: LocalPath | None = Field(default=None, description="Socket file to listen on in place of host and port.")
    unix_mode: FileMode = Field(default="600", description="Who may use the socket file, as chmod writes it.")
    port: Port = Field(default=8080, description="Port to listen on; 0 takes a free one.")
    path_prefix: PathPrefix = Field(
        default="", description="What all paths begin with, as /llm; health stands alone too."
    )
    workers: int = Field(default=1, ge=1, le=256, description="Worker processes.")
    admin_port: Port | None = Field(default=None, description="Port of the admin routes.")
    dialect: Literal["openai", "open_responses"] = Field(default="openai", description="Form of the Responses API.")
    max_body_mb: float = Field(default=64, gt=0, le=4096, description="Largest request body, in MiB.")
    max_depth: int = Field(default=128, ge=1, le=1000, description="Deepest nesting of a request's JSON.")
    drain_s: Amount = Field(default=30, le=3600, description="Seconds that running requests get when it stops.")
    keepalive_s: float = Field(default=15, gt=0, le=3600, description="Seconds of silence before a comment frame.")
    idle_s: float = Field(default=75, ge=1, le=3600, description="Seconds that a connection without requests is kept.")
    cors: tuple[Origin, ...] = Field(default=(), description="Origins that browsers may call from.")
    tls: Tls | None = Field(default=None, description="Serve HTTPS.")
    trusted_proxies: tuple[Network, ...] = Field(
        default=(), description="Proxies whose word for the client's address is taken."
    )
    completions_as_chat: bool = Field(
        default=False, description="Send /v1/completions to chat-only models as one user message."
    )
    request_templates: bool = Field(default=False, description="May a request bring its own chat template?")
    unsupported_params: Unsupported = Field(
        default="error", description="What happens to a parameter that the target does not know."
    )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it: by an address of its own, or by the socket file alone."""
        return is_loopback(self.host) or (self.unix is not None and self.admin_port is None)
