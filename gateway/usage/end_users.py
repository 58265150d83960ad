"""Whom a client of the gateway asks for: the end users that an application tells apart under its one key."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import sha256

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.request import Request
from adapters.canonical.rerank import RerankRequest, ScoreRequest
from gateway.limits.limiter import WINDOW_S

__all__ = ["MAX_USERS", "NOBODY", "OTHERS", "USER_HEADER", "EndUsers", "end_user"]

USER_HEADER = "x-gateway-user"
NOBODY = "(none)"
"""All requests that name no user, as if they were one."""
OTHERS = "(others)"
"""Users beyond MAX_USERS within a minute, as if they were one."""
MAX_USERS = 10_000
"""Of one account: names cost a client nothing, and what they take of the memory is taken of other clients."""
_MAX_NAME = 128
_MAX_ACCOUNTS = 10_000


def end_user(request: object, headers: Mapping[str, str]) -> str:
    """By the header, else by the body. A name that is long, or not to be printed, is told by its hash."""
    name = headers.get(USER_HEADER)
    if not name and isinstance(request, Request):
        name = request.safety_identifier or request.user
    elif not name and isinstance(request, EmbeddingRequest | RerankRequest | ScoreRequest):
        name = request.user
    if not name:
        return NOBODY
    if len(name) <= _MAX_NAME and name.isprintable():
        return name
    return f"sha256:{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


class EndUsers:
    """Those of each account in the last minute. `now` gives Unix seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: dict[str, OrderedDict[str, float]] = {}

    def counted(self, account: str, name: str) -> str:
        """Under which name a request of this user is counted."""
        now, seen = self._now(), self._seen.get(account)
        if seen is None:
            if len(self._seen) >= _MAX_ACCOUNTS:
                del self._seen[next(iter(self._seen))]
            seen = self._seen[account] = OrderedDict()
        while seen and now - next(iter(seen.values())) > WINDOW_S:
            seen.popitem(last=False)
        if name not in seen and len(seen) >= MAX_USERS:
            return OTHERS
        seen[name] = now
        seen.move_to_end(name)
        return name
