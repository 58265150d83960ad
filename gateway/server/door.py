"""Who may come in: keys, and without keys only programs of this machine.

A gateway on loopback that asks for no key must still be out of reach of web pages: a page could call it through a name
that resolves to loopback (so a foreign Host is refused) or straight from a browser (so a foreign Origin is).
"""

import hmac
import ipaddress
from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from adapters.canonical.errors import AuthenticationFailed, PermissionDenied
from gateway.keys.client_key import ClientKey
from gateway.keys.directory import KeyDirectory
from gateway.keys.stored import may_be_stored

if TYPE_CHECKING:
    from gateway.keys.signed_tokens import SignedTokens

__all__ = ["Door", "KeyDoor", "LoopbackDoor", "with_password_as_key"]

_NO_PAGES = "requests from web pages are not served, but for those of 'server.cors'"
_OWN_ID = 24
"""Characters of the hash that names a client by its own key."""


class KeyDoor:
    """Lets in who shows a key: `Authorization: Bearer ...`, `x-api-key`, `api-key`, or as Google's clients do,
    `x-goog-api-key` or `?key=...`. `keys` are those of run.yaml, by secret; `tokens` and `directory` know more clients.

    `passes_through`: who is none of these is let in as well, and its key goes to the provider, which judges it.
    """

    def __init__(
        self,
        keys: Mapping[str, ClientKey],
        *,
        tokens: "SignedTokens | None" = None,
        directory: KeyDirectory | None = None,
        passes_through: bool = False,
    ) -> None:
        self._tokens = tokens
        self._directory = directory
        self._passes_through = passes_through
        # Found by digest, so that the time of the search tells nothing about a secret.
        self._keys = {blake2b(secret.encode()).digest(): (secret.encode(), key) for secret, key in keys.items()}

    async def admit(self, headers: Mapping[str, str], query: str = "") -> ClientKey | None:
        """The client's key. `query` is percent-encoded. Raises AuthenticationFailed, and NotReady where a key can't be
        looked up."""
        shown = _shown_key(headers) or _key_in(query)
        if shown is None:
            raise AuthenticationFailed(
                "no API key: send it as 'Authorization: Bearer KEY' or in the header x-api-key", code="missing_api_key"
            )
        data = shown.encode("utf-8", "surrogateescape")
        found = self._keys.get(blake2b(data).digest())
        if found is not None and hmac.compare_digest(found[0], data):
            return found[1]
        if self._tokens is not None and _looks_signed(shown):
            return await self._tokens.client(shown)
        key = await self._directory.client(shown) if self._directory is not None else None
        if key is not None:
            return key
        if self._passes_through and not self._is_of_ours(shown) and shown.isascii() and shown.isprintable():
            return ClientKey(f"own:{sha256(data).hexdigest()[:_OWN_ID]}", upstream_key=shown)
        raise AuthenticationFailed("the API key is not known")

    def _is_of_ours(self, shown: str) -> bool:
        """Whether it has the form of a key made at run time: one that is good no more is no provider's key."""
        return self._directory is not None and may_be_stored(shown)


class LoopbackDoor:
    """Lets in programs of this machine, and pages that it serves itself or that `allows` lets in; asks for no key."""

    def __init__(self, allows: Callable[[str], bool] = lambda origin: False) -> None:
        self._allows = allows

    async def admit(self, headers: Mapping[str, str], query: str = "") -> ClientKey | None:
        """None: there are no keys. Raises PermissionDenied."""
        if not _is_local_host(headers.get("host", "")):
            raise PermissionDenied("without keys only requests to a loopback host name are served", code="foreign_host")
        origin = headers.get("origin")
        if origin is None:
            if headers.get("sec-fetch-site") == "cross-site":
                raise PermissionDenied(_NO_PAGES, code="foreign_origin")
        elif not _is_local_origin(origin) and not self._allows(origin):
            raise PermissionDenied(_NO_PAGES, code="foreign_origin")
        return None


Door = KeyDoor | LoopbackDoor


def _looks_signed(secret: str) -> bool:
    """Whether it has the form of a signed token: a JSON object and two more parts, each in base64."""
    return secret.startswith("eyJ") and secret.count(".") == 2


def _shown_key(headers: Mapping[str, str]) -> str | None:
    authorization = headers.get("authorization")
    if authorization is not None:
        scheme, _, value = authorization.partition(" ")
        value = value.strip()
        if value and (scheme == "Bearer" or scheme.lower() == "bearer"):
            return value
    return headers.get("x-api-key") or headers.get("api-key") or headers.get("x-goog-api-key")


def with_password_as_key(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers with the password of HTTP Basic authentication as the key; as they are where there is none."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return headers
    try:
        _, _, password = b64decode(value, validate=True).decode().partition(":")
    except ValueError:  # no base64, or no UTF-8
        return headers
    return {**headers, "authorization": f"Bearer {password}"}


def _key_in(query: str) -> str | None:
    return next((unquote(field[4:]) for field in query.split("&") if field.startswith("key=")), None) or None


@lru_cache(maxsize=256)
def _is_local_host(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    if name is None:
        return False
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)
def _is_local_origin(origin: str) -> bool:
    scheme, found, host = origin.partition("://")
    return bool(found) and scheme in ("http", "https") and _is_local_host(host)
