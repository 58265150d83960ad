"""Which web pages may call from a browser (`server.cors`): answers to preflights, and the headers that let a page read.

Cookies play no part: a page shows its key as a header, as every client does.
"""

from collections.abc import Sequence

from gateway.http.answer import Answer
from gateway.http.request import Request

__all__ = ["Cors"]

_MAX_AGE_S = "600"
_METHODS = "GET, POST, PATCH, DELETE"
_EXPOSED = ", ".join(
    (
        "x-request-id",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "x-should-retry",
        "x-gateway-provider",
        "x-gateway-upstream-model",
        "x-gateway-upstream-request-id",
        "x-gateway-dropped-params",
        "x-gateway-metrics",
        "x-gateway-cache",
        *(f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")),
    )
)


class Cors:
    """`origins` are `https://app.example.com`; `*` is every page."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._any = "*" in self._origins

    def allows(self, origin: str | None) -> bool:
        return origin is not None and (self._any or origin.lower() in self._origins)

    def preflight(self, request: Request) -> Answer | None:
        """The answer to a browser that asks whether a page may send a request; None: this is no such question."""
        if request.method != "OPTIONS" or "access-control-request-method" not in request.headers:
            return None
        origin = request.headers.get("origin")
        if not self.allows(origin):
            return Answer(status=403, headers={"Server": "gateway", "Vary": "Origin"})
        headers = {
            **self.headers(origin),
            "Server": "gateway",
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Max-Age": _MAX_AGE_S,
        }
        asked = request.headers.get("access-control-request-headers")
        if asked is not None:
            headers["Access-Control-Allow-Headers"] = asked
        return Answer(status=204, headers=headers)

    def headers(self, origin: str | None) -> dict[str, str]:
        """What is said beside an answer to a page of this origin."""
        if origin is None or not self.allows(origin):
            return {"Vary": "Origin"}
        return {
            "Access-Control-Allow-Origin": "*" if self._any else origin,
            "Access-Control-Expose-Headers": _EXPOSED,
            "Vary": "Origin",
        }
