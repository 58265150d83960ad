"""Keys made at run time: how they are made, what is kept of them, and what they are worth.

A secret is shown only once, when it is made. What is kept is its hash under `auth.hash_secret`, so that who reads the
database can neither use a key nor try guesses on it.
"""

import hmac
import re
from collections.abc import Callable, Mapping
from hashlib import sha256

import orjson
from pydantic import Field

from adapters.canonical.errors import Conflict, InvalidRequest
from gateway.config.posted import parse_posted
from gateway.config.sections.auth import ClientAccount
from gateway.config.sections.section import Name, Section
from gateway.keys.client_key import Account, ClientKey, Team
from gateway.storage.records import KeptKey

__all__ = [
    "NewKey",
    "Rotation",
    "changed",
    "client_of",
    "described",
    "digest_of",
    "is_good",
    "kept",
    "make_secret",
    "may_be_stored",
    "parse_change",
    "parse_new_key",
    "parse_rotation",
    "rotated",
    "team_of",
]

_START = "gw-"
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_LENGTH = 43
"""256 bits, in letters and digits."""
_DAY_S = 86_400
_DEPTH = 4
"""Of the rules: those of a model, its limits, and a rate among these."""


class KeyRules(ClientAccount):
    """What a key may do, as run.yaml says it of its own keys."""

    admin: bool = Field(default=False, description="May it call the admin routes?")
    blocked: bool = Field(default=False, description="Lets nobody in until it is false again.")


class NewKey(KeyRules):
    id: Name = Field(description="Name of the key, as it stands in logs.")
    days: float | None = Field(default=None, gt=0, le=36_500, description="Days until it expires; default: never.")


class _ChangedKey(KeyRules):
    days: float | None = Field(default=None, gt=0, le=36_500, description="Days until it expires, from now on.")


class Rotation(Section):
    grace_s: float = Field(default=0, ge=0, le=30 * _DAY_S, description="Seconds that the old secret stays good.")


def parse_new_key(body: bytes) -> NewKey:
    """Raises InvalidRequest, naming the path."""
    return parse_posted(NewKey, body)


def parse_change(body: bytes) -> dict[str, object]:
    """What a key's rules and days are changed to, as `changed` takes it. Raises InvalidRequest."""
    try:
        change = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"body: not valid JSON: {error}") from None
    if not isinstance(change, dict):
        raise InvalidRequest("body: expected an object")
    return change


def parse_rotation(body: bytes) -> Rotation:
    """Raises InvalidRequest, naming the path."""
    return parse_posted(Rotation, body)


def make_secret(choice: Callable[[str], str]) -> str:
    """`choice` takes one of the characters at random, so that nobody can guess (`secrets.choice`)."""
    return _START + "".join([choice(_ALPHABET) for _ in range(_LENGTH)])


def digest_of(secret: str, hash_secret: str) -> bytes:
    return hmac.digest(hash_secret.encode(), secret.encode("utf-8", "surrogateescape"), sha256)


def kept(new: NewKey, digest: bytes, now: float) -> KeptKey:
    """What the database gets."""
    rules = KeyRules.model_validate(new.model_dump(exclude={"id", "days"}))
    expires = None if new.days is None else int(now + new.days * _DAY_S)
    raw = rules.model_dump_json(exclude_defaults=True).encode()
    return KeptKey(new.id, digest, int(now), expires, None, raw)


def changed(key: KeptKey, change: dict[str, object], now: float) -> KeptKey:
    """The key with what the change names, and all else as it was: a merge patch (RFC 7396), where null stands for the
    default. Raises InvalidRequest, and Conflict for a key that is revoked."""
    _check_not_revoked(key)
    new = parse_posted(_ChangedKey, orjson.dumps(_merged(orjson.loads(key.rules), change, _DEPTH)))
    rules = KeyRules.model_validate(new.model_dump(exclude={"days"}))
    expires = key.expires
    if "days" in change:
        expires = None if new.days is None else int(now + new.days * _DAY_S)
    return key._replace(rules=rules.model_dump_json(exclude_defaults=True).encode(), expires=expires)


def _merged(kept: object, change: object, depth: int) -> object:
    if not isinstance(change, dict) or not depth:
        return change
    merged = dict(kept) if isinstance(kept, dict) else {}
    for name, value in change.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value, depth - 1)
    return merged


def rotated(key: KeptKey, digest: bytes, rotation: Rotation, now: float) -> KeptKey:
    """The key with a new secret; the one before the old one is good no more. Raises Conflict for a key that is
    revoked."""
    _check_not_revoked(key)
    if not rotation.grace_s:
        return key._replace(hash=digest, previous_hash=None, previous_until=None)
    return key._replace(hash=digest, previous_hash=key.hash, previous_until=int(now + rotation.grace_s))


def _check_not_revoked(key: KeptKey) -> None:
    if key.revoked is not None:
        raise Conflict(f"the key '{key.id}' is revoked, for ever", param="id", code="key_revoked")


def is_good(key: KeptKey, digest: bytes, now: float) -> bool:
    """Whether a secret with this hash is let in."""
    if key.revoked is not None or (key.expires is not None and now >= key.expires):
        return False
    if hmac.compare_digest(key.hash, digest):
        return True
    if key.previous_hash is None or key.previous_until is None or now >= key.previous_until:
        return False
    return hmac.compare_digest(key.previous_hash, digest)


def client_of(key: KeptKey, teams: Mapping[str, Team]) -> ClientKey | None:
    """The client that the key lets in, while it is good. None: its team is none of `teams`."""
    rules = KeyRules.model_validate_json(key.rules)
    if rules.team is not None and rules.team not in teams:
        return None
    team = None if rules.team is None else teams[rules.team]
    return ClientKey(key.id, Account.of(rules), team, admin=rules.admin, is_blocked=rules.blocked)


def team_of(key: KeptKey) -> str | None:
    """The name of its team; None: it has none."""
    return KeyRules.model_validate_json(key.rules).team


def described(key: KeptKey) -> dict[str, object]:
    """For those who run the gateway. Nothing of the secret is in it."""
    rules = KeyRules.model_validate_json(key.rules)
    return {
        "id": key.id,
        "created": key.created,
        "expires": key.expires,
        "revoked": key.revoked,
        "previous_until": key.previous_until,
        **rules.model_dump(mode="json", exclude_none=True),
    }


_IS_STORED = re.compile(rf"{_START}[A-Za-z0-9]{{{_LENGTH}}}")


def may_be_stored(secret: str) -> bool:
    """Whether it has the form of a key made at run time: the database is not asked about anything else."""
    return _IS_STORED.fullmatch(secret) is not None
