"""Makes, lists, shows, changes, rotates and revokes keys, for the admin routes and for `gateway keys`."""

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

from adapters.canonical.errors import Conflict, InvalidRequest, NotFound
from adapters.nearest_name import did_you_mean_or_all
from gateway.keys.directory import KeyDirectory
from gateway.keys.stored import NewKey, Rotation, changed, digest_of, kept, make_secret, rotated, team_of
from gateway.storage.records import KeptKey

if TYPE_CHECKING:
    from gateway.storage.opening import Stores

__all__ = ["KeyAdministration"]


class KeyAdministration:
    """`stores` opens the database, `now` gives Unix seconds. `directory` None: no gateway runs here.

    `taken` are the ids of run.yaml's own keys: what is kept and counted for an id belongs to one client. `teams` are
    the names of its teams.
    """

    def __init__(
        self,
        stores: "Callable[[], Awaitable[Stores]]",
        hash_secret: str,
        *,
        now: Callable[[], float],
        taken: Collection[str],
        teams: Collection[str],
        directory: KeyDirectory | None = None,
    ) -> None:
        self._stores = stores
        self._hash_secret = hash_secret
        self._now = now
        self._taken = frozenset(taken)
        self._teams = teams
        self._directory = directory

    async def check_ids(self) -> None:
        """Raises ValueError where run.yaml has the id of a key that was made at run time, and NotReady where that can't
        be told."""
        if self._taken and (both := await (await self._stores()).client_keys.taken(self._taken)):
            told = ", ".join(f"'{key_id}'" for key_id in both)
            raise ValueError(f"auth.keys: {told}: a key of this id was made at run time, expected an id of its own")

    async def create(self, new: NewKey) -> tuple[str, KeptKey]:
        """The secret, which nobody can get again, and what is kept. Raises Conflict for an id that there is, and
        InvalidRequest for a team that there is not."""
        if new.id in self._taken:
            raise Conflict(f"there is a key '{new.id}' in run.yaml", param="id", code="key_exists")
        secret = make_secret(secrets.choice)
        key = self._in_a_team(kept(new, digest_of(secret, self._hash_secret), self._now()))
        await (await self._stores()).client_keys.add(key)
        return secret, key

    async def list(self, after: str | None, limit: int) -> tuple[Sequence[KeptKey], bool]:
        """By id, and whether there are more."""
        return await (await self._stores()).client_keys.list(after, limit)

    async def find(self, key_id: str) -> KeptKey:
        """Raises NotFound."""
        key = await (await self._stores()).client_keys.find(key_id)
        if key is None:
            raise _unknown(key_id)
        return key

    async def change(self, key_id: str, change: dict[str, object]) -> KeptKey:
        """Holds from now on here, and from KNOWN_S later elsewhere. Raises NotFound, InvalidRequest and Conflict."""
        return await self._changed(key_id, lambda key: self._in_a_team(changed(key, change, self._now())))

    async def rotate(self, key_id: str, rotation: Rotation) -> tuple[str, KeptKey]:
        """A new secret, which nobody can get again. Its id, its rules and what it used stay. The old one is good until
        the grace is over, and KNOWN_S more elsewhere. Raises NotFound and Conflict."""
        secret = make_secret(secrets.choice)
        digest = digest_of(secret, self._hash_secret)
        return secret, await self._changed(key_id, lambda key: rotated(key, digest, rotation, self._now()))

    async def revoke(self, key_id: str) -> KeptKey:
        """From now on here, and from KNOWN_S later elsewhere, it lets nobody in. Raises NotFound."""
        key = await (await self._stores()).client_keys.revoke(key_id, int(self._now()))
        if key is None:
            raise _unknown(key_id)
        if self._directory is not None:
            self._directory.forget(key)
        return key

    def _in_a_team(self, key: KeptKey) -> KeptKey:
        team = team_of(key)
        if team is not None and team not in self._teams:
            told = did_you_mean_or_all(team, sorted(self._teams))
            raise InvalidRequest.at("team", f"run.yaml has no team '{team}'{told}")
        return key

    async def _changed(self, key_id: str, change: Callable[[KeptKey], KeptKey]) -> KeptKey:
        found = await (await self._stores()).client_keys.change(key_id, change)
        if found is None:
            raise _unknown(key_id)
        before, after = found
        if self._directory is not None:
            self._directory.forget(before)
        return after


def _unknown(key_id: str) -> NotFound:
    return NotFound(f"there is no key '{key_id}'", param="id")
