"""A token of the gateway's own account at a cloud, which its library finds: kept until shortly before it ends."""

import asyncio
import time
from collections.abc import Callable, Mapping

__all__ = ["AccountToken"]

_EARLY_S = 300.0
"""A token is got anew so long before it ends."""


class AccountToken:
    """`get` gives a token and the Unix seconds of its end, or raises UpstreamAuth. It may block: a thread calls it."""

    def __init__(self, get: Callable[[], tuple[str, float]]) -> None:
        self._get = get
        self._token = ""
        self._end = 0.0
        self._lock = asyncio.Lock()

    async def sign(self, method: str, path: str, body: bytes) -> Mapping[str, str]:
        """See `providers.remote.http.Sign`. Several callers at once get one token."""
        async with self._lock:
            if time.time() >= self._end - _EARLY_S:
                self._token, self._end = await asyncio.to_thread(self._get)
            return {"authorization": f"Bearer {self._token}"}
