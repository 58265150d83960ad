"""One request, as it came."""

import asyncio
from collections.abc import Sequence
from typing import Protocol, overload
from urllib.parse import parse_qsl, unquote, urlsplit

from gateway.http.body import Body
from gateway.http.outflow import Outflow

__all__ = ["Query", "Request", "Upgraded", "Wire"]


class Upgraded(Protocol):
    """What speaks on a connection that has left HTTP."""

    def received(self, data: bytes) -> None: ...

    def lost(self) -> None:
        """The client is gone."""
        ...


class Wire(Protocol):
    """The connection that a request came on."""

    @property
    def task(self) -> "asyncio.Task[None] | None":
        """Serves the request."""
        ...

    @property
    def peer(self) -> str | None:
        """The IP address of the other end; None: it came by a socket file."""
        ...

    @property
    def is_lost(self) -> bool:
        """The client is gone."""
        ...

    @property
    def outflow(self) -> Outflow:
        """Whether the client takes what is written."""
        ...

    def write(self, data: bytes) -> None:
        """Raises ConnectionError when the client is gone."""
        ...

    def throttle(self, halts: bool) -> None:
        """True: nothing is read until a False for it comes."""
        ...

    def upgrade(self, upgraded: Upgraded) -> bytes:
        """From now on this hears what the client sends. Gives what has come already, behind the request."""
        ...

    def close(self, *, has_more: bool) -> None:
        """Ends the connection once what was written is taken; `has_more`: and the client, which may still be sending,
        has closed as well."""
        ...

    def abort(self) -> None:
        """Ends the connection at once."""
        ...


class Query:
    """The fields of a query, decoded, in their order."""

    __slots__ = ("_fields",)

    def __init__(self, query: str) -> None:
        self._fields: Sequence[tuple[str, str]] = parse_qsl(query, keep_blank_values=True)

    @overload
    def get(self, name: str) -> str | None: ...
    @overload
    def get(self, name: str, default: str) -> str: ...
    def get(self, name: str, default: str | None = None) -> str | None:
        """The first of this name."""
        return next((value for key, value in self._fields if key == name), default)

    def all(self, name: str) -> Sequence[str]:
        return [value for key, value in self._fields if key == name]

    def items(self) -> Sequence[tuple[str, str]]:
        return self._fields


class Request:
    """`headers` have lower-case names, and several of one name are joined with ", ". `target` is as it was sent.

    Making one raises ValueError for an address whose host is none.
    """

    __slots__ = (
        "body",
        "headers",
        "is_1_0",
        "is_answered",
        "keeps_alive",
        "method",
        "path",
        "query_string",
        "target",
        "wire",
    )

    def __init__(
        self, method: str, target: str, headers: dict[str, str], body: Body, wire: Wire, *, is_1_0: bool = False
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.wire = wire
        self.is_1_0 = is_1_0
        """HTTP/1.0, which knows no chunks."""
        self.is_answered = False
        """An answer has begun to go out, so there is room for no other one."""
        self.keeps_alive = not is_1_0
        """The client may send another request on this connection."""
        path, _, query = target.partition("?")
        if path[:1] != "/":
            parts = urlsplit(target)
            path, query = parts.path or "/", parts.query
        self.path = path
        """Percent-encoded, as it was sent."""
        self.query_string = query
        """The same of the query."""

    @property
    def decoded_path(self) -> str:
        return unquote(self.path)

    @property
    def query(self) -> Query:
        return Query(self.query_string)

    @property
    def has_body(self) -> bool:
        """It comes with one, which may be empty where it comes in chunks."""
        return bool(self.content_length) or "transfer-encoding" in self.headers

    @property
    def content_length(self) -> int | None:
        """Of the body as it is sent; None for one in chunks."""
        length = self.headers.get("content-length")
        return int(length) if length is not None else None

    def say_continue(self) -> None:
        """Tells a client that waits before it sends its body to go on."""
        if self.body.is_awaited:
            self.body.is_awaited = False
            self.wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
