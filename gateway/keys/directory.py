"""Finds keys made at run time by what a client shows. Answers from memory where it can, for a few seconds.

So a key that was revoked elsewhere (by `gateway keys`, at another replica) is let in for KNOWN_S more at most. While
the database fails, keys that it knew go on for GRACE_S.
"""

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from adapters.canonical.errors import NotReady
from gateway.keys.client_key import ClientKey
from gateway.keys.stored import digest_of, may_be_stored, worth
from gateway.storage.records import KeptKey

__all__ = ["GRACE_S", "KNOWN_S", "MAX_KNOWN", "KeyDirectory"]

KNOWN_S = 10.0
GRACE_S = 600.0
MAX_KNOWN = 10_000

Find = Callable[[bytes], Awaitable[KeptKey | None]]


class _Known(NamedTuple):
    key: KeptKey | None
    """None: there is none."""
    at: float


class KeyDirectory:
    """`find` asks the database for a hash. `clock` gives seconds of any origin, `now` Unix seconds.

    `taken` are the ids of run.yaml's own keys: no other key is let in under one of these.
    """

    def __init__(
        self,
        find: Find,
        hash_secret: str,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        taken: Collection[str] = (),
    ) -> None:
        self._taken = frozenset(taken)
        self._find = find
        self._hash_secret = hash_secret
        self._clock = clock
        self._now = now
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[KeptKey | None]] = {}

    async def client(self, secret: str) -> ClientKey | None:
        """None: it lets nobody in. Raises NotReady where that can't be told."""
        if not may_be_stored(secret):
            return None
        digest = digest_of(secret, self._hash_secret)
        known = self._known.get(digest)
        if known is None or self._clock() - known.at >= KNOWN_S:
            known = await self._ask(digest, known)
        key = known.key
        if key is None or not hmac.compare_digest(key.hash, digest):
            return None
        return worth(key, self._now())

    def forget(self, digest: bytes) -> None:
        """The key has changed."""
        self._known.pop(digest, None)

    async def _ask(self, digest: bytes, known: _Known | None) -> _Known:
        """Once for all who ask at the same time."""
        task = self._asking.get(digest)
        if task is None:
            task = self._asking[digest] = asyncio.ensure_future(self._found(digest))
            task.add_done_callback(lambda done: self._answered(digest, done))
        try:
            key = await asyncio.shield(task)
        except NotReady:
            if known is None or known.key is None or self._clock() - known.at >= GRACE_S:
                raise
            return known
        fresh = self._known[digest] = _Known(key, self._clock())
        self._known.move_to_end(digest)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return fresh

    async def _found(self, digest: bytes) -> KeptKey | None:
        key = await self._find(digest)
        return None if key is None or key.id in self._taken else key

    def _answered(self, digest: bytes, task: "asyncio.Task[KeptKey | None]") -> None:
        self._asking.pop(digest, None)
        if not task.cancelled():
            task.exception()  # whoever waits for it gets it as well
