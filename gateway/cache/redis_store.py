"""Stored answers in Redis, for several processes. Needs the extra [redis]."""

import math
from collections.abc import Callable, Mapping

from gateway.redis_pipe import RedisAway, RedisPipe

__all__ = ["RedisStore"]

_PREFIX = "gateway:answer:"
_WAIT_S = 0.25
"""What Redis gets to answer: a cache that is slower than this is no help."""
_AGAIN_S = 1.0
"""After a failure Redis is left alone for so long, lest every request waits for it."""
_QUIET_S = 60.0
_MOST = 32
"""Answers of one round trip, which may be long."""


class RedisStore:
    """`log` is told of failures: a Redis that is away is as a cache that is empty, once a minute in the log."""

    def __init__(
        self, url: str, ttl_s: float, *, clock: Callable[[], float], log: Callable[[str, Mapping[str, object]], None]
    ) -> None:
        self._pipe = RedisPipe(url, timeout_s=_WAIT_S, most=_MOST)
        self._ttl_ms = max(1, int(ttl_s * 1000))
        self._clock = clock
        self._log = log
        self._away_until = self._quiet_until = -math.inf

    async def get(self, key: bytes) -> bytes | None:
        if self._clock() < self._away_until:
            return None
        try:
            found = await self._pipe.send("GET", _PREFIX + key.hex())
        except RedisAway as error:
            self._failed(error)
            return None
        return found if isinstance(found, bytes) else None

    async def put(self, key: bytes, data: bytes) -> None:
        if self._clock() < self._away_until:
            return
        try:
            await self._pipe.send("SET", _PREFIX + key.hex(), data, "PX", self._ttl_ms)
        except RedisAway as error:
            self._failed(error)

    async def aclose(self) -> None:
        await self._pipe.aclose()

    def _failed(self, error: RedisAway) -> None:
        now = self._clock()
        self._away_until = now + _AGAIN_S
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_S
            self._log("cache_unreachable", {"error": str(error)})
