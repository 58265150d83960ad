"""Clients that show a token which their own identity provider has signed (JWT, OpenID Connect).

The signing keys are fetched when they are first needed, kept, and fetched again when a token names one that is not
among them. Only algorithms with a public key are taken, and only those that run.yaml allows (RFC 8725, 3.1 and 3.2).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import urlsplit

import jwt
import orjson

from adapters.canonical.errors import AuthenticationFailed, NotReady, PermissionDenied
from gateway.config.sections.auth import Jwt
from gateway.keys.client_key import Account, ClientKey, Team

__all__ = ["FETCH_AGAIN_S", "KEYS_KEPT_S", "MAX_KNOWN", "SignedTokens"]

KEYS_KEPT_S = 3600.0
FETCH_AGAIN_S = 30.0
"""An unknown key makes for one fetch in this time: a client may name any."""
MAX_KNOWN = 10_000
"""Tokens whose signature is remembered."""
_AGAIN_S = 1.0
"""An issuer that failed is left alone for so long, lest one request after the other waits for it."""
_KNOWN_S = 60.0
_MAX_ID = 200
_MAX_KEYS = 100
_CONFIGURATION = "/.well-known/openid-configuration"

Fetch = Callable[[str], Awaitable[bytes]]
"""The body behind an address. Raises NotReady."""


class _Known(NamedTuple):
    key: ClientKey
    until: float


class SignedTokens:
    """`teams` are those of run.yaml. `clock` gives seconds of any origin, `now` Unix seconds."""

    def __init__(
        self,
        rules: Jwt,
        teams: Mapping[str, Team],
        fetch: Fetch,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._rules = rules
        self._teams = teams
        self._fetch = fetch
        self._clock = clock
        self._now = now
        self._account = Account.of(rules)
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at: float | None = None
        self._failed_at: float | None = None
        self._fetching = asyncio.Lock()
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    async def client(self, token: str) -> ClientKey:
        """Raises AuthenticationFailed, PermissionDenied where it belongs to no team and has to, and NotReady where the
        signing keys can't be fetched."""
        digest = sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._known.get(digest)
        if known is not None and self._now() < known.until:
            return known.key
        self._known.pop(digest, None)
        try:
            header = jwt.get_unverified_header(token)
            signing_key = await self._signing_key(header.get("kid"))
            claims = jwt.decode(
                token,
                signing_key.key,
                algorithms=list(self._rules.algorithms),
                audience=list(self._rules.audience),
                leeway=self._rules.leeway_s,
                options={
                    "require": ["exp", "iss", "aud"],
                    "verify_iss": False,
                    "verify_exp": False,
                    "verify_nbf": False,
                },
            )
        except (jwt.PyJWTError, TypeError) as error:  # the second for a key that is of no use to the token's algorithm
            raise AuthenticationFailed(f"the token is not accepted: {error}", code="invalid_token") from error
        key = self._client(claims)
        self._known[digest] = _Known(key, min(float(claims["exp"]), self._now() + _KNOWN_S))
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return key

    def _client(self, claims: dict[str, object]) -> ClientKey:
        now, leeway_s = self._now(), self._rules.leeway_s
        expires, begins = claims["exp"], claims.get("nbf", 0)
        if not isinstance(expires, int | float) or not isinstance(begins, int | float):
            raise AuthenticationFailed("the token is not accepted: its times are no numbers", code="invalid_token")
        if now >= expires + leeway_s:
            raise AuthenticationFailed("the token has expired", code="token_expired")
        if now < begins - leeway_s:
            raise AuthenticationFailed("the token is not valid yet", code="invalid_token")
        issuer = claims["iss"]
        if not isinstance(issuer, str) or issuer.rstrip("/") != self._rules.issuer:
            raise AuthenticationFailed("the token is not accepted: another issuer made it", code="invalid_token")
        name = claims.get(self._rules.id_claim)
        if not isinstance(name, str) or not name or len(name) > _MAX_ID or not name.isprintable():
            why = f"the token is not accepted: the claim '{self._rules.id_claim}' must name the client"
            raise AuthenticationFailed(why, code="invalid_token")
        account = self._account
        if self._rules.models_claim is not None:
            account = replace(account, models=tuple(_texts(claims, self._rules.models_claim)))
        return ClientKey(f"jwt:{name}", account, self._team(claims))

    def _team(self, claims: dict[str, object]) -> Team | None:
        """Of its teams the first one of run.yaml; the default for who has none of these."""
        claim, default = self._rules.team_claim, self._rules.team
        if claim is not None:
            named = _texts(claims, claim)
            found = next((team for name, team in self._teams.items() if name in named), None)
            if found is not None:
                return found
            if default is None:  # without a team's limits it would be let in for more than anybody in one
                raise PermissionDenied(
                    f"the token's claim '{claim}' names no team of this gateway", code="unknown_team"
                )
        return None if default is None else self._teams[default]

    async def _signing_key(self, name: object) -> jwt.PyJWK:
        """Raises AuthenticationFailed for one that the issuer does not have."""
        if not self._is_fresh(KEYS_KEPT_S) or self._find(name) is None:
            async with self._fetching:
                if not self._is_fresh(KEYS_KEPT_S) or (self._find(name) is None and not self._is_fresh(FETCH_AGAIN_S)):
                    await self._load()
        found = self._find(name)
        if found is None:
            raise AuthenticationFailed(
                "the token is signed with a key that its issuer does not have", code="invalid_token"
            )
        return found

    def _find(self, name: object) -> jwt.PyJWK | None:
        """A token may leave the name out where the issuer has one key."""
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(name) if isinstance(name, str) else None

    def _is_fresh(self, within_s: float) -> bool:
        return self._fetched_at is not None and self._clock() - self._fetched_at < within_s

    async def _load(self) -> None:
        """The issuer's keys. Keys that are known already go on where they can't be fetched."""
        if self._failed_at is not None and self._clock() - self._failed_at < _AGAIN_S:
            raise NotReady("the issuer of tokens can't be reached", code="issuer_unavailable", retry_after_s=_AGAIN_S)
        try:
            body = await self._fetch(await self._address())
            entries = _object(body).get("keys")
            if not isinstance(entries, list):
                raise NotReady("the issuer of tokens gives no keys", code="issuer_unavailable")
        except NotReady:
            if not self._keys:
                self._failed_at = self._clock()
                raise
            self._fetched_at = self._clock()
            return
        self._keys = dict(_usable(entries[:_MAX_KEYS]))
        self._fetched_at = self._clock()

    async def _address(self) -> str:
        if self._rules.jwks_url is not None:
            return self._rules.jwks_url
        found = _object(await self._fetch(self._rules.issuer + _CONFIGURATION)).get("jwks_uri")
        if not isinstance(found, str) or urlsplit(found).scheme not in ("https", urlsplit(self._rules.issuer).scheme):
            raise NotReady("the issuer of tokens does not say where its keys are", code="issuer_unavailable")
        return found


def _texts(claims: dict[str, object], claim: str) -> list[str]:
    """What a claim says: a list of texts, or one text with blanks (as OAuth writes scopes) or commas between. A
    name with dots that is no claim leads into objects."""
    found: object = claims.get(claim)
    if found is None and "." in claim:
        found = claims
        for step in claim.split("."):
            found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, str):
        return found.replace(",", " ").split()
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _object(body: bytes) -> dict[str, object]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotReady("the issuer of tokens answers with no JSON", code="issuer_unavailable") from error
    return found if isinstance(found, dict) else {}


def _usable(entries: list[object]) -> list[tuple[str, jwt.PyJWK]]:
    """Keys for signatures by name; those that this library does not know are left out."""
    found: list[tuple[str, jwt.PyJWK]] = []
    for entry in entries:
        if (
            not isinstance(entry, dict)
            or entry.get("use", "sig") != "sig"
            or entry.get("kty") not in ("RSA", "EC", "OKP")
        ):
            continue
        try:
            found.append((str(entry.get("kid", "")), jwt.PyJWK.from_dict(entry)))
        except jwt.PyJWTError:
            continue  # of a kind that is new: a token that needs it is refused by name
    return found
