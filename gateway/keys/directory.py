"""Finds keys made at run time by what a client shows. Answers from memory where it can, for a few seconds.

So a key that was revoked or changed elsewhere (by `gateway keys`, at another replica) is let in as it was for KNOWN_S
more at most. While the database fails or is silent, keys that it knew go on for GRACE_S.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from adapters.canonical.errors import NotReady, PermissionDenied
from gateway.keys.client_key import ClientKey, Team
from gateway.keys.stored import client_of, digest_of, is_good, may_be_stored
from gateway.storage.records import KeptKey

__all__ = ["GRACE_S", "KNOWN_S", "MAX_KNOWN", "KeyDirectory"]

KNOWN_S = 10.0
GRACE_S = 600.0
MAX_KNOWN = 10_000
KNOWN_WAIT_S = 0.25
"""A key that was good a moment ago waits no longer for a database that is slow."""
UNKNOWN_WAIT_S = 5.0

Find = Callable[[bytes], Awaitable[KeptKey | None]]


class _Known(NamedTuple):
    """What the database said at a time. None: there is no such key."""

    key: KeptKey | None
    client: ClientKey | None
    """None: there is no such team."""
    at: float


class _Asking(NamedTuple):
    task: "asyncio.Task[_Known]"
    since: float


class KeyDirectory:
    """`find` asks the database for a hash. `clock` gives seconds of any origin, `now` Unix seconds.

    `taken` are the ids of run.yaml's own keys: no other key is let in under one of these. `teams` are
    those of run.yaml.
    """

    def __init__(
        self,
        find: Find,
        hash_secret: str,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        taken: Collection[str] = (),
        teams: Mapping[str, Team] = MappingProxyType({}),
    ) -> None:
        self._taken = frozenset(taken)
        self._teams = teams
        self._find = find
        self._hash_secret = hash_secret
        self._clock = clock
        self._now = now
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._forgotten = 0  # how often something was
        self._asking: dict[bytes, _Asking] = {}

    async def client(self, secret: str) -> ClientKey | None:
        """None: it lets nobody in. Raises PermissionDenied where it is blocked or its team is gone, and NotReady where
        nothing can be told."""
        if not may_be_stored(secret):
            return None
        digest = digest_of(secret, self._hash_secret)
        known = self._known.get(digest)
        if known is None or self._clock() - known.at >= KNOWN_S:
            known = await self._ask(digest, known)
        if known.key is None or not is_good(known.key, digest, self._now()):
            return None
        if known.client is None:  # without its team's limits it would be let in for more than it was made for
            raise PermissionDenied("the team of this key is not among the gateway's teams", code="unknown_team")
        if known.client.is_blocked:
            raise PermissionDenied("this key is blocked for now", code="key_blocked")
        return known.client

    def forget(self, key: KeptKey) -> None:
        """The key has changed. `key` is what it was."""
        self._forgotten += 1
        for digest in (key.hash, key.previous_hash):
            if digest is not None:
                self._known.pop(digest, None)
                self._asking.pop(digest, None)

    async def _ask(self, digest: bytes, known: _Known | None) -> _Known:
        """Once for all who ask at the same time."""
        now = self._clock()
        asking = self._asking.get(digest)
        if asking is None:
            asking = self._asking[digest] = _Asking(asyncio.ensure_future(self._found(digest, self._forgotten)), now)
            asking.task.add_done_callback(lambda done: self._answered(digest, done))
        goes_on = known is not None and known.key is not None and now - known.at < GRACE_S
        wait_s = KNOWN_WAIT_S if goes_on else UNKNOWN_WAIT_S
        try:
            async with asyncio.timeout(max(0.0, asking.since + wait_s - now)):
                return await asyncio.shield(asking.task)
        except (NotReady, TimeoutError) as error:
            if known is not None and goes_on:
                return known
            if isinstance(error, NotReady):
                raise
            raise NotReady("the gateway's database does not answer", code="storage_unavailable") from error

    async def _found(self, digest: bytes, forgotten: int) -> _Known:
        """Goes on when nobody waits for it any more."""
        key = await self._find(digest)
        if key is not None and key.id in self._taken:
            key = None
        fresh = _Known(key, None if key is None else client_of(key, self._teams), self._clock())
        if forgotten != self._forgotten:
            return fresh  # it may be of the time before a change
        self._known[digest] = fresh
        self._known.move_to_end(digest)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return fresh

    def _answered(self, digest: bytes, task: "asyncio.Task[_Known]") -> None:
        asking = self._asking.get(digest)
        if asking is not None and asking.task is task:
            del self._asking[digest]
        if not task.cancelled():
            task.exception()  # whoever waits for it gets it as well
