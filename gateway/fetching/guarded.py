"""The guarded fetcher: schemes, addresses, redirects, size and time are checked by run.yaml's `fetch:`."""

import asyncio
import base64
import binascii
import ipaddress
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from adapters.canonical.errors import InvalidRequest
from gateway.config.sections.tools import Fetch
from gateway.fetching.addresses import CheckedResolver, ForbiddenAddress
from gateway.fetching.whole_body import BodyTooLong, whole_body
from providers.fetching import Fetched

__all__ = ["GuardedFetcher"]

_MAX_REDIRECTS = 5
_CONNECT_S = 5.0
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_MAX_CONNECTIONS = 64
_PRIVATE = "its host is not on the public network"


class GuardedFetcher:
    """Satisfies `providers.fetching.Fetcher`. Opens nothing before the first fetch. No cookies, no proxy, no
    credentials of a URL.

    `total_s` is for one fetch with its redirects; `resolver` None: the system's.
    """

    def __init__(self, rules: Fetch, *, total_s: float = 30.0, resolver: AbstractResolver | None = None) -> None:
        self._rules = rules
        self.max_bytes = rules.max_mb * 2**20
        """How large an answer may be."""
        self._total_s = total_s
        self._resolver = resolver
        self._checked: CheckedResolver | None = None
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, url: str, *, param: str | None = None) -> Fetched:
        if url[:5].lower() == "data:":
            self._check_scheme("data", param)
            return self._from_data(url, param)
        try:
            async with asyncio.timeout(self._total_s):
                return await self._follow(url, param)
        except BodyTooLong as error:
            raise self._too_large(param) from error
        except TimeoutError as error:
            raise _refused(f"it did not come within {self._total_s:g} s", param) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _refused(_PRIVATE if _is_forbidden(error) else "it cannot be fetched", param) from error

    async def open(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        """One exchange with an address that a request names, by the same rules, of which the caller reads and closes
        the answer. Redirects are not followed. Raises InvalidRequest, aiohttp.ClientError and OSError."""
        try:
            address = URL(url)
            self._check_url(address, None)
            session = self._open_session()
            return await session.request(method, address, headers=headers, data=body or None, allow_redirects=False)
        except ValueError as error:
            raise _refused("it is not an address", None) from error
        except OSError as error:
            if _is_forbidden(error):
                raise _refused(_PRIVATE, None) from error
            raise

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _follow(self, address: str, param: str | None) -> Fetched:
        url = URL(address)
        for _ in range(_MAX_REDIRECTS + 1):
            self._check_url(url, param)
            async with self._open_session().get(url, allow_redirects=False) as answer:
                location = answer.headers.get("location")
                if answer.status in _REDIRECTS and location is not None:
                    url = url.join(URL(location))
                    continue
                if answer.status != 200:
                    raise _refused(f"it is answered with {answer.status}", param)
                body = await whole_body(answer.content.iter_any(), self.max_bytes)  # unpacked
                return Fetched(body, answer.content_type.lower())
        raise _refused(f"it leads through more than {_MAX_REDIRECTS} redirects", param)

    def _check_url(self, url: URL, param: str | None) -> None:
        self._check_scheme(url.scheme, param)
        host = url.host
        if not host:
            raise _refused("it names no host", param)
        if url.user is not None or url.password is not None:
            raise _refused("it holds a user name or a password", param)
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return  # a name: the resolver looks at what it stands for
        checked = self._checked_resolver()
        if not checked.allows(host, host):
            raise ForbiddenAddress(_PRIVATE)

    def _check_scheme(self, scheme: str, param: str | None) -> None:
        if scheme not in self._rules.schemes:
            raise _refused(f"expected one of the schemes {', '.join(self._rules.schemes)}", param)

    def _from_data(self, url: str, param: str | None) -> Fetched:
        head, comma, data = url[5:].partition(",")
        if not comma:
            raise _refused("it is not a data URL", param)
        if len(data) > 4 * self.max_bytes:
            raise self._too_large(param)
        media_type, *options = head.split(";")
        try:
            raw = unquote_to_bytes(data)
            found = base64.b64decode(raw, validate=True) if "base64" in options else raw
        except (binascii.Error, ValueError) as error:
            raise _refused("its base64 is broken", param) from error
        if len(found) > self.max_bytes:
            raise self._too_large(param)
        return Fetched(found, media_type.strip().lower())

    def _too_large(self, param: str | None) -> InvalidRequest:
        return _refused(f"it is larger than {self._rules.max_mb} MiB", param)

    def _checked_resolver(self) -> CheckedResolver:
        if self._checked is None:
            self._checked = CheckedResolver(
                self._resolver or aiohttp.ThreadedResolver(),
                private=self._rules.private_addresses,
                allow_hosts=self._rules.allow_hosts,
            )
        return self._checked

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Without a cache of names, each connection is made to an address that was checked for it.
            connector = aiohttp.TCPConnector(
                resolver=self._checked_resolver(), use_dns_cache=False, limit=_MAX_CONNECTIONS, force_close=True
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                trust_env=False,
            )
        return self._session


def _is_forbidden(error: Exception) -> bool:
    """aiohttp wraps what a resolver raises."""
    return any(isinstance(each, ForbiddenAddress) for each in (error, error.__cause__ or error.__context__))


def _refused(why: str, param: str | None) -> InvalidRequest:
    return InvalidRequest(f"{param or 'the address'}: {why}", param=param, code="invalid_url")
