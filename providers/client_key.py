"""The client's own key, where the gateway passes it on in place of a provider's (`auth.pass_through`).

It belongs to the task that serves the request, and so to every call that this task makes, of whatever kind.
"""

from contextvars import ContextVar
from typing import NamedTuple

__all__ = ["CLIENT_KEY", "KeyHeader"]

CLIENT_KEY: ContextVar[str | None] = ContextVar("client_key", default=None)
"""None: the provider's own key is used."""


class KeyHeader(NamedTuple):
    """Where a provider looks for a key: the header, and what stands before the key in it."""

    name: str
    prefix: str = ""
