"""How an MCP server is reached."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.fetching.guarded import GuardedFetcher

__all__ = ["HttpTransport", "StdioTransport", "Transport"]


@dataclass(frozen=True, slots=True, repr=False)
class HttpTransport:
    """At a URL. `sse`: by the older transport; None: streamable HTTP, or that one where the server has no other.

    `fetcher` dials what a request names; None: run.yaml names it.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    sse: bool | None = False
    fetcher: GuardedFetcher | None = None


@dataclass(frozen=True, slots=True, repr=False)
class StdioTransport:
    """A process here, over its standard input and output. `env` are variables that it gets besides the usual ones."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


Transport = HttpTransport | StdioTransport
