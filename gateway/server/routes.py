"""Paths to what serves them: those that are written out, and those that hold a model's name where `*` stands.

/v1/chat/completions
/v1/models/*                                       a name up to the end; it may hold slashes and colons
/v1beta/models/*:generateContent                   a name, and what is wanted of it
/v1beta/models/*:streamGenerateContent?alt=sse     the same, only with this in the query
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import unquote

from adapters.front import Front
from adapters.nearest_name import nearest
from gateway.http.answer import Reply
from gateway.server.exchange import Exchange

__all__ = ["Handler", "Route", "Routes", "Served", "of_method"]

Handler = Callable[[Exchange], Awaitable[Reply]]
_NONE: Mapping[str, "Route"] = {}
_VERTEX = re.compile(r"^/v1(?:beta1)?/(?:projects/[^/]+/locations/[^/]+/)?publishers/([^/]+)/models/")
"""How clients of Vertex AI begin a path. They put a name `a/b` into it as `publishers/a/models/b`."""
_BARE = re.compile(r"^/v1beta/(?!models/)(?=.+:\w+$)")
"""How a client of the Gemini API begins one that takes a name with a slash for a whole path (Vercel's AI SDK)."""


@dataclass(frozen=True, slots=True)
class Route:
    """What serves the methods of one path. `front` is the dialect of its errors; None is OpenAI's.

    `takes_password`: it is a page for browsers, which show their key as a password.

    `label` is the path in the table, without a query, by which telemetry counts; `Routes` sets it.
    """

    methods: Mapping[str, Handler]
    front: Front | None = None
    takes_password: bool = False
    label: str = field(default="", compare=False)


class Served(Protocol):
    """What answers one method of one path."""

    @property
    def front(self) -> Front | None:
        """The dialect of its errors; None is OpenAI's."""
        ...

    async def serve(self, exchange: Exchange) -> Reply: ...


def of_method(method: str, served: Mapping[str, Served]) -> dict[str, Route]:
    """Routes of this method alone."""
    return {path: Route({method: one.serve}, one.front) for path, one in served.items()}


class Routes:
    """Everything stands beneath `prefix`, which ends without a slash, and `bare` as it is written."""

    def __init__(self, table: Mapping[str, Route], prefix: str = "", bare: Mapping[str, Route] = _NONE) -> None:
        self._prefix = prefix
        labelled = {path: replace(route, label=path.partition("?")[0]) for path, route in table.items()}
        self._exact = {**bare, **{f"{prefix}{path}": route for path, route in labelled.items() if "*" not in path}}
        self._named = {path: route for path, route in labelled.items() if "*" in path}
        self._starts = sorted({path.partition("*")[0] for path in self._named})

    def find(self, path: str, query: str) -> tuple[Route | None, str | None]:
        """The route of a path, and the name in it, decoded. Both are as they were sent, percent-encoded."""
        exact = self._exact.get(path)
        if exact is not None:
            return exact, None
        if not path.startswith(self._prefix):
            return None, None
        plain = _BARE.sub("/v1beta/models/", _VERTEX.sub(_as_plain, path[len(self._prefix) :]))
        return self._find_named(plain, query)

    def nearest(self, path: str) -> str | None:
        """The path that a wrong one may have meant, None where none is like it: without its beginning, or misspelt."""
        for start in (self._prefix, f"{self._prefix}/v1"):
            if f"{start}{path}" in self._exact:
                return f"{start}{path}"
        found = nearest(path, self._exact)
        last = path.rstrip("/").rpartition("/")[2]  # which tells paths apart; much of what stands before it is alike
        return None if found is None or nearest(last, [found.rpartition("/")[2]]) is None else found

    def is_written_out(self, path: str) -> bool:
        return path in self._exact

    def _find_named(self, path: str, query: str) -> tuple[Route | None, str | None]:
        start = next((start for start in self._starts if path.startswith(start) and path != start), None)
        if start is None:
            return None, None
        name, _, verb = path[len(start) :].rpartition(":")
        if name:
            wanted = [f"{start}*:{verb}?{field}" for field in query.split("&")] + [f"{start}*:{verb}"]
            found = next((self._named[key] for key in wanted if key in self._named), None)
            if found is not None:
                return found, unquote(name)
        return self._named.get(f"{start}*"), unquote(path[len(start) :])


def _as_plain(vertex: re.Match[str]) -> str:
    """The same beginning, as clients of the Gemini API have it."""
    publisher = vertex[1]
    return "/v1beta/models/" if publisher == "google" else f"/v1beta/models/{publisher}/"
