"""What is kept, as plain values. JSON stays bytes. Knows no database."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "Advance",
    "Final",
    "KeptChat",
    "KeptConversation",
    "KeptEvent",
    "KeptItem",
    "KeptKey",
    "KeptResponse",
    "Page",
    "PageOf",
]


class KeptItem(NamedTuple):
    """`raw` is the JSON object, its id included."""

    id: str
    raw: bytes


class KeptEvent(NamedTuple):
    """One event of a response's log; `data` is its JSON object."""

    number: int
    name: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResponse:
    """`created` is Unix seconds. `body` is the Response object; while it is made, as it was when it was last written.

    `worker` names the process that makes it, None once it is final.
    """

    id: str
    owner: str
    created: int
    status: str
    body: bytes
    background: bool = False
    parent: str | None = None
    conversation: str | None = None
    worker: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptConversation:
    """`metadata` is a JSON object."""

    id: str
    owner: str
    created: int
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptChat:
    """`body` is the completion without its metadata."""

    id: str
    owner: str
    created: int
    model: str
    metadata: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """How a response ended. `items` are those that it made."""

    status: str
    body: bytes
    items: Sequence[KeptItem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """What is new of a response that is being made. `body` goes with a `status` that is not final yet.

    `after` is for who is not its maker: the number of the last event, as far as is known. Where there are more by now,
    nothing is written.
    """

    id: str
    after: int | None = None
    events: Sequence[KeptEvent] = ()
    status: str | None = None
    body: bytes | None = None
    final: Final | None = None


class KeptKey(NamedTuple):
    """A client's key. `hash` is that of its secret, `rules` JSON. Times are Unix seconds, None where it has none.

    `previous_hash` is that of the secret before, which is good as well until `previous_until`.
    """

    id: str
    hash: bytes
    created: int
    expires: int | None
    revoked: int | None
    rules: bytes
    previous_hash: bytes | None = None
    previous_until: int | None = None


class Page(NamedTuple):
    """Which part of a list is wanted: at most `limit`, those behind the one with the id `after`."""

    after: str | None = None
    limit: int = 20
    descending: bool = True


class PageOf(NamedTuple):
    """`items` in the order that was asked for."""

    items: list[KeptItem]
    has_more: bool
