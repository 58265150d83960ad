"""The door for `auth:` of run.yaml, and what makes keys at run time."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gateway.config import Config
from gateway.keys.client_key import teams_of
from gateway.keys.directory import KeyDirectory
from gateway.keys.key_administration import KeyAdministration
from gateway.server.accounting import client_key
from gateway.server.cors import Cors
from gateway.server.door import Door, KeyDoor, LoopbackDoor
from gateway.storage.records import KeptKey

if TYPE_CHECKING:
    from gateway.storage.opening import Stores

__all__ = ["build_door"]


def build_door(
    config: Config,
    cors: Cors | None,
    stores: "Callable[[], Awaitable[Stores]]",
    *,
    clock: Callable[[], float],
    now: Callable[[], float],
) -> tuple[Door, KeyAdministration | None]:
    """`stores` opens the database. Without `auth.hash_secret` no keys are made at run time."""
    auth = config.auth
    if auth is None:
        return (LoopbackDoor(cors.allows) if cors is not None else LoopbackDoor()), None
    teams = teams_of(auth)
    directory: KeyDirectory | None = None
    administration: KeyAdministration | None = None
    if auth.hash_secret is not None:
        hash_secret = auth.hash_secret.get_secret_value()

        async def find(digest: bytes) -> KeptKey | None:
            return await (await stores()).client_keys.find_by_hash(digest)

        taken = [key.id for key in auth.keys]
        directory = KeyDirectory(find, hash_secret, clock=clock, now=now, taken=taken, teams=teams)
        administration = KeyAdministration(stores, hash_secret, now=now, taken=taken, teams=teams, directory=directory)
    tokens = None
    if auth.jwt is not None:
        from gateway.keys.issuer_fetch import fetch
        from gateway.keys.signed_tokens import SignedTokens

        tokens = SignedTokens(auth.jwt, teams, fetch, clock=clock, now=now)
    door = KeyDoor(
        {key.secret.get_secret_value(): client_key(key, teams) for key in auth.keys},
        tokens=tokens,
        directory=directory,
        passes_through=auth.pass_through,
    )
    return door, administration
