"""Keys made at run time: how they are made, what is kept of them, and what they are worth.

A secret is shown once, when it is made. What is kept is its hash under `auth.hash_secret`, so that who reads the
database can neither use a key nor try guesses on it.
"""

import hmac
import re
from collections.abc import Callable
from hashlib import sha256

from pydantic import Field, ValidationError

from adapters.canonical.errors import InvalidRequest
from gateway.config.sections.auth import Budget, Limits, ModelLimits
from gateway.config.sections.section import FrozenMap, Name, Section, Text, empty_map
from gateway.keys.client_key import ClientKey
from gateway.limits.rules import Rules
from gateway.storage.records import KeptKey

__all__ = ["NewKey", "described", "digest_of", "kept", "make_secret", "may_be_stored", "parse_new_key", "worth"]

_START = "gw-"
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_LENGTH = 43
"""256 bits, in letters and digits."""
_DAY_S = 86_400


class KeyRules(Section):
    """What a key may do, as run.yaml says it of its own keys."""

    models: tuple[Text, ...] = Field(default=("*",), description="Names that the client may ask for.")
    admin: bool = Field(default=False, description="May it call the admin routes?")
    limits: Limits | None = Field(default=None, description="Rates of this key.")
    budget: Budget | None = Field(default=None, description="Spending of this key.")
    per_model: FrozenMap[ModelLimits] = Field(
        default_factory=empty_map, description="What it may use of single models."
    )


class NewKey(KeyRules):
    id: Name = Field(description="Name of the key, as it stands in logs.")
    days: float | None = Field(
        default=None, gt=0, le=36_500, description="Days that it is good for; default: for ever."
    )


def parse_new_key(body: bytes) -> NewKey:
    """Raises InvalidRequest, naming the path."""
    try:
        return NewKey.model_validate_json(body, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise InvalidRequest(f"{path or 'body'}: {first['msg']}", param=path or None) from None


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


def worth(key: KeptKey, now: float) -> ClientKey | None:
    """The client that the key lets in; None: it is revoked, or its time is over."""
    if key.revoked is not None or (key.expires is not None and now >= key.expires):
        return None
    rules = KeyRules.model_validate_json(key.rules)
    return ClientKey(
        key.id,
        tuple(rules.models),
        rules.admin,
        rules=Rules.of(rules.limits, rules.budget),
        per_model=tuple((name, Rules.of(each.limits, each.budget)) for name, each in rules.per_model.items()),
    )


def described(key: KeptKey) -> dict[str, object]:
    """For those who run the gateway. Nothing of the secret is in it."""
    rules = KeyRules.model_validate_json(key.rules)
    return {
        "id": key.id,
        "created": key.created,
        "expires": key.expires,
        "revoked": key.revoked,
        **rules.model_dump(mode="json", exclude_none=True),
    }


_IS_STORED = re.compile(rf"{_START}[A-Za-z0-9]{{{_LENGTH}}}")


def may_be_stored(secret: str) -> bool:
    """Whether it has the form of a key made at run time: the database is not asked about anything else."""
    return _IS_STORED.fullmatch(secret) is not None
