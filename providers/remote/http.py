"""One provider's HTTP: its connections, the heads that leave, and the limits until an answer's head is there.

Knows no dialect, no JSON and no vendor. Every exception that leaves is a GatewayError. What comes after the head is the
Answer's.
"""

import asyncio
from collections.abc import AsyncIterable, Mapping

from multidict import CIMultiDict
from yarl import URL

from adapters.canonical.errors import StaleConnection, UpstreamError
from providers.base import Limits, ProviderSettings
from providers.client_key import KeyHeader
from providers.remote.answer import Answer
from providers.remote.failure import FOREIGN, no_answer, no_connection
from providers.remote.origin import Origin
from providers.remote.pool import Pool
from providers.remote.request_head import RequestHeads, rendered
from providers.remote.session import Session
from providers.remote.shared_limit import SharedLimit
from providers.remote.tls import ResumingContext, trusting
from providers.remote.wire_answer import Unanswered

__all__ = ["BESIDE_VERSION", "HttpClient"]

BESIDE_VERSION = "/../"
"""How a path begins that lies beside the last folder of the base URL (its version), not below it."""
_STALE_S = 1.0
"""A peer that had closed a kept connection before it read the request says so within this, a round trip at most."""


class HttpClient:
    """Calls of one provider. Opens no socket before the first one; belongs to the event loop of that call."""

    def __init__(
        self,
        settings: ProviderSettings,
        base_url: str,
        auth: Mapping[str, str],
        *,
        key_header: KeyHeader | None = None,
    ) -> None:
        """`auth` are the headers that carry the key, `key_header` is where a client's own one goes; None: nowhere, as
        calls are signed for the gateway's account, or a token of it goes with them.

        Raises ValueError on settings that can't work.
        """
        self.provider = settings.name
        self.limits: Limits = settings.limits
        url = _checked_base(settings.name, base_url)
        self._host = url.raw_host or ""
        self._port = url.port or 0
        self._site = str(url.origin())
        self._base_path = url.raw_path.rstrip("/")
        self._heads = RequestHeads(settings, auth, url.host_port_subcomponent or "", key_header)
        self._tls = _trusting(settings) if url.scheme == "https" or settings.ca_file is not None else None
        self._proxy = _checked_proxy(settings)
        self._max_connections = settings.max_connections
        self._session = Session(self.limits, max_connections=self._max_connections, tls=self._tls, proxy=self._proxy)
        self._pool: Pool | None = None
        self._first_token = SharedLimit(self.limits.first_token_s)
        self._whole = SharedLimit(self.limits.whole_s)
        self._closed = False

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer to a GET. Its body counts against the first-token limit."""
        sent = self._heads.of_get(headers)
        if self._proxy is not None:
            return await self._by_session("GET", path, sent, None, limit_s=self.limits.first_token_s)
        head = rendered("GET", self._target(path), sent)
        try:
            return await self._ask(head, b"", stream=True)
        except StaleConnection:
            return await self._ask(head, b"", stream=True)  # a GET may be sent twice, and has no router

    async def post(
        self,
        path: str,
        body: bytes,
        *,
        stream: bool,
        request_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer to a JSON body, as soon as its head came. `stream`: server-sent events are wanted, the first of
        them within the first-token limit; what comes whole begins within `whole_s`, and has the gap limit from there.
        """
        if self._proxy is None:
            head = self._heads.post(self._target(path), len(body), request_id, headers, stream=stream)
            return await self._ask(head, body, stream=stream)
        sent = self._heads.of_post(len(body), request_id, headers, stream=stream)
        if stream:
            return await self._by_session("POST", path, sent, body, limit_s=self.limits.first_token_s)
        return await self._by_session("POST", path, sent, body, head_s=self.limits.whole_s)

    async def forward(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: AsyncIterable[bytes] | None,
        *,
        length: int | None,
        request_id: str | None = None,
    ) -> Answer:
        """The answer to a body that is sent while it arrives, as soon as its head came. `headers` go beside ours.

        `length`: of the body, None sends it in chunks. The total limit alone holds until the head.
        """
        sent = self._heads.of_forwarded(headers, request_id)
        if length is not None:
            sent["content-length"] = str(length)
        return await self._by_session(method, path, sent, body)

    async def _ask(self, head: bytes, body: bytes, *, stream: bool) -> Answer:
        """Raises StaleConnection where a kept connection ended at its peer at the very time when it was used again, as
        far as can be told: at once, and unanswered."""
        pool = self._pool or self._open_pool()
        connection = kept = pool.idle()
        if connection is None:
            try:
                connection = await pool.connect()
            except FOREIGN as error:
                raise no_connection(self.provider, error) from error
        answer = connection.send(head, body)
        limit = self._first_token if stream else self._whole
        deadline = limit.watch(answer.head)
        try:
            await answer.head
        except FOREIGN as error:
            answer.close()
            took_s = asyncio.get_running_loop().time() - (deadline - limit.limit_s)
            if connection is kept and isinstance(error, Unanswered) and took_s <= _STALE_S:
                pool.drop_idle()  # they were kept for longer
                raise StaleConnection(f"{self.provider}: a kept connection ended as it was used again") from error
            raise no_answer(self.provider, error) from error
        except BaseException:
            answer.close()
            raise
        finally:
            limit.forget(answer.head)
        return Answer(self.provider, answer, deadline if stream else None, self.limits)

    async def _by_session(
        self,
        method: str,
        path: str,
        headers: CIMultiDict[str],
        body: bytes | AsyncIterable[bytes] | None,
        *,
        limit_s: float | None = None,
        head_s: float | None = None,
    ) -> Answer:
        """`limit_s` bounds the time until the answer has begun, `head_s` until its head came."""
        self._check_open()
        deadline = None if limit_s is None else asyncio.get_running_loop().time() + limit_s
        url = URL(self._site + self._target(path), encoded=True)
        try:
            async with asyncio.timeout(limit_s if head_s is None else head_s):
                answer = await self._session.call(method, url, headers, body)
        except FOREIGN as error:
            raise no_answer(self.provider, error) from error
        return Answer(self.provider, answer, deadline, self.limits)

    def _target(self, path: str) -> str:
        """What stands in a request's first line."""
        if path.startswith(BESIDE_VERSION):
            return self._base_path.rpartition("/")[0] + path[len(BESIDE_VERSION) - 1 :]
        return self._base_path + path

    def _open_pool(self) -> Pool:
        self._check_open()
        origin = Origin(self._host, self._port, self._tls)
        self._pool = Pool(origin, max_connections=self._max_connections, connect_s=self.limits.connect_s)
        return self._pool

    def _check_open(self) -> None:
        if self._closed:
            raise UpstreamError(f"{self.provider}: the provider is closed")

    async def aclose(self) -> None:
        """Closes every connection, also those in use. May be called again."""
        self._closed = True
        self._first_token.close()
        self._whole.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()
        await self._session.aclose()


def _checked_base(provider: str, base_url: str) -> URL:
    try:
        url = URL(base_url)
    except ValueError as error:
        raise ValueError(f"providers.{provider}.base_url: not a URL") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"providers.{provider}.base_url: must start with http:// or https:// and name a host")
    if url.user is not None or url.query_string or url.fragment:
        raise ValueError(f"providers.{provider}.base_url: no user, query or fragment is allowed here")
    return url


def _checked_proxy(settings: ProviderSettings) -> URL | None:
    """The proxy's URL; it may hold a user and a password, so no message quotes it."""
    if settings.proxy is None:
        return None
    try:
        proxy = URL(settings.proxy)
    except ValueError as error:
        raise ValueError(f"providers.{settings.name}.proxy: not a URL") from error
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise ValueError(f"providers.{settings.name}.proxy: must start with http:// or https:// and name a host")
    return proxy


def _trusting(settings: ProviderSettings) -> ResumingContext:
    try:
        return trusting(settings.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(
            f"providers.{settings.name}.ca_file: {settings.ca_file} holds no readable certificate"
        ) from error
