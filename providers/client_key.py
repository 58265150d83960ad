"""The client's own key, where the gateway passes it on in place of a provider's (`auth.pass_through`).

It belongs to the task that serves the request, and so to every call that this task makes, of whatever kind; but it goes
to one provider alone, that which a model's name stands for in the first place, and no other one is asked with the
gateway's key in its place.
"""

from contextvars import ContextVar
from typing import NamedTuple

__all__ = ["BEARER", "CLIENT_KEY", "KeyHeader", "OwnKey", "give_own_key_to"]


class OwnKey(NamedTuple):
    """`provider` is the name of the one that the key is meant for; None until the request has a route."""

    secret: str
    provider: str | None = None


CLIENT_KEY: ContextVar[OwnKey | None] = ContextVar("client_key", default=None)
"""None: the provider's own key is used."""


def give_own_key_to(provider: str) -> None:
    """From here on the task's own key, where it has one, is for the provider of this name."""
    own = CLIENT_KEY.get()
    if own is not None:
        CLIENT_KEY.set(OwnKey(own.secret, provider))


class KeyHeader(NamedTuple):
    """Where a provider looks for a key: the header, and what stands before the key in it."""

    name: str
    prefix: str = ""


BEARER = KeyHeader("authorization", "Bearer ")
