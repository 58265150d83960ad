"""Who may come in: keys, and without keys only programs of this machine.

A gateway on loopback that asks for no key must still be out of reach of web pages: a page could call it through a name
that resolves to loopback (so a foreign Host is refused) or straight from a browser (so a foreign Origin is).
"""

import hmac
import ipaddress
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from urllib.parse import unquote, urlsplit

from adapters.canonical.errors import AuthenticationFailed, PermissionDenied
from gateway.keys.client_key import ClientKey

__all__ = ["Door", "KeyDoor", "LoopbackDoor"]


class KeyDoor:
    """Lets in who shows a key: `Authorization: Bearer ...`, `x-api-key`, `api-key`, or as Google's clients do,
    `x-goog-api-key` or `?key=...`. `keys` are those of run.yaml, by secret."""

    def __init__(self, keys: Mapping[str, ClientKey]) -> None:
        # Found by digest, so that the time of the search tells nothing about a secret.
        self._keys = {sha256(secret.encode()).digest(): (secret.encode(), key) for secret, key in keys.items()}

    async def admit(self, headers: Mapping[str, str], query: str = "") -> ClientKey | None:
        """The client's key. `query` is percent-encoded. Raises AuthenticationFailed."""
        shown = _shown_key(headers) or _key_in(query)
        if shown is None:
            raise AuthenticationFailed(
                "no API key: send it as 'Authorization: Bearer KEY' or in the header x-api-key", code="missing_api_key"
            )
        data = shown.encode("utf-8", "surrogateescape")
        found = self._keys.get(sha256(data).digest())
        if found is None or not hmac.compare_digest(found[0], data):
            raise AuthenticationFailed("the API key is not known")
        return found[1]


class LoopbackDoor:
    """Lets in programs of this machine, and pages that it serves itself or that `allows` lets in; asks for no key."""

    def __init__(self, allows: Callable[[str], bool] = lambda origin: False) -> None:
        self._allows = allows

    async def admit(self, headers: Mapping[str, str], query: str = "") -> ClientKey | None:
        """None: there are no keys. Raises PermissionDenied."""
        if not _is_local_host(headers.get("Host", "")):
            raise PermissionDenied("without keys only requests to a loopback host name are served", code="foreign_host")
        origin = headers.get("Origin")
        if origin is None:
            if headers.get("Sec-Fetch-Site") == "cross-site":
                raise PermissionDenied("requests from web pages are not served", code="foreign_origin")
        elif not _is_local_origin(origin) and not self._allows(origin):
            raise PermissionDenied("requests from web pages are not served", code="foreign_origin")
        return None


Door = KeyDoor | LoopbackDoor


def _shown_key(headers: Mapping[str, str]) -> str | None:
    authorization = headers.get("Authorization")
    if authorization is not None:
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "bearer" and value.strip():
            return value.strip()
    return headers.get("x-api-key") or headers.get("api-key") or headers.get("x-goog-api-key")


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
