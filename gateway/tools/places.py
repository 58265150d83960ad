"""Where an MCP server is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.fetching.guarded import GuardedFetcher

__all__ = ["Address", "Command", "Place"]


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """Behind a URL. `sse`: the older transport; None: streamable HTTP, or that one where the server has no other.

    `fetcher` dials what a request names; None: run.yaml names it.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    sse: bool | None = False
    fetcher: GuardedFetcher | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Command:
    """A process of this machine. `env` are variables that it gets besides the usual ones."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


Place = Address | Command
