"""One provider's HTTP: the connection pool, the headers that leave, and the limits until an answer's head is there.

Knows no dialect, no JSON and no vendor. Every exception that leaves is a GatewayError. What comes after the head is the
Answer's.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterable, Coroutine, Mapping
from io import BytesIO
from typing import TypeAlias

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from adapters.canonical.errors import UpstreamAuth, UpstreamError
from providers.base import Limits, ProviderSettings
from providers.client_key import CLIENT_KEY, KeyHeader
from providers.remote.answer import Answer
from providers.remote.connector import Connector
from providers.remote.failure import FOREIGN, no_answer
from providers.remote.pooled_post import MAX_SMALL_BYTES, PooledAnswer, PooledPost
from providers.remote.shared_limit import SharedLimit
from providers.trace_context import TRACE

__all__ = ["BESIDE_VERSION", "HttpClient"]

BESIDE_VERSION = "/../"
"""How a path begins that lies beside the last folder of the base URL (its version), not below it."""
_KEEP_ALIVE_S = 30.0
_READ_BUFFER_BYTES = 64 * 1024  # two of these wait in memory for a slow reader, then the socket is paused
_ONE_WRITE_BYTES = 1 << 20
_MAX_KEPT_PATHS = 64
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_OURS = frozenset(
    # Of the framing and the content: whoever sets these from outside breaks the request.
    (
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-request-id",
    )
)


_Call: TypeAlias = Coroutine[None, None, PooledAnswer | aiohttp.ClientResponse]


class HttpClient:
    """The pool of one provider. Opens no socket before the first call; belongs to the event loop of that call."""

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
        self._key_header = key_header
        self._asks_for_no_key = key_header is not None and not auth
        self.provider = settings.name
        self.limits: Limits = settings.limits
        self._base = _checked_base(settings.name, base_url)
        self._posts: dict[str, PooledPost] = {}
        self._headers = _outgoing_headers(settings, auth, URL(base_url).host_port_subcomponent or "")
        self._post_headers = CIMultiDict(self._headers, **{"content-type": "application/json"})
        self._stream_headers = CIMultiDict(self._post_headers)
        self._stream_headers["accept"] = "text/event-stream"
        self._stream_headers["accept-encoding"] = "identity"  # a compressor in between would hold tokens back
        self._ssl = _trusting(settings) if settings.ca_file is not None else True
        self._proxy = _checked_proxy(settings)
        self._max_connections = settings.max_connections
        self._whole = SharedLimit(self.limits.whole_s)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer to a GET. Its body counts against the first-token limit."""
        call = self._request("GET", path, CIMultiDict(self._headers, **(headers or {})), None)
        return await self._answer(call, self.limits.first_token_s)

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
        sent = (self._stream_headers if stream else self._post_headers).copy()
        if headers is not None:
            sent.update(headers)
        self._put_call(sent, request_id)
        sent["content-length"] = str(len(body))
        call: _Call
        if len(body) <= MAX_SMALL_BYTES and self._proxy is None:
            call = self._pooled_post(path).send(sent, body)
        else:
            call = self._request("POST", path, sent, body)
        if stream:
            return await self._answer(call, self.limits.first_token_s)
        return await self._answer(self._whole.hold(call), None)

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
        sent = self._headers.copy()
        sent.update(headers)
        self._put_call(sent, request_id)
        sent["accept-encoding"] = "identity"  # the length of an answer is passed on with it
        if length is not None:
            sent["content-length"] = str(length)
        return await self._answer(self._request(method, path, sent, body), None)

    def _put_call(self, sent: CIMultiDict[str], request_id: str | None) -> None:
        """Adds what belongs to this call: the client's own key, the request's id, the trace.

        Raises UpstreamAuth where the call would be made in the gateway's name for a client that has its own key.
        """
        own = CLIENT_KEY.get()
        if own is not None:
            if own.provider == self.provider and self._key_header is not None:
                name, prefix = self._key_header
                sent[name] = prefix + own.secret
            elif not self._asks_for_no_key:
                raise UpstreamAuth(f"{self.provider}: it is not asked in the name of a client with a key of its own")
        if request_id is not None and _is_header_value(request_id):
            sent["x-request-id"] = request_id
        for name, value in TRACE.get():
            sent[name] = value

    async def _answer(self, call: _Call, limit_s: float | None) -> Answer:
        deadline = None if limit_s is None else asyncio.get_running_loop().time() + limit_s
        try:
            if deadline is None:
                response = await call
            else:
                async with asyncio.timeout_at(deadline):
                    response = await call
        except FOREIGN as error:
            raise no_answer(self.provider, error) from error
        return Answer(self.provider, response, deadline, self.limits)

    def _pooled_post(self, path: str) -> PooledPost:
        post = self._posts.get(path)
        if post is None:
            post = PooledPost(
                self._open_session(),
                self._url(path),
                connect_s=self.limits.connect_s,
                read_bufsize=_READ_BUFFER_BYTES,
            )
            if len(self._posts) < _MAX_KEPT_PATHS:  # some dialects put the model's name into the path
                self._posts[path] = post
        return post

    async def _request(
        self, method: str, path: str, headers: CIMultiDict[str], body: bytes | AsyncIterable[bytes] | None
    ) -> aiohttp.ClientResponse:
        data: bytes | BytesIO | AsyncIterable[bytes] | None = body
        if isinstance(body, bytes) and len(body) > _ONE_WRITE_BYTES:
            data = BytesIO(body)  # in pieces, as the peer reads
        return await self._open_session().request(
            method, self._url(path), data=data, headers=headers, proxy=self._proxy, allow_redirects=False
        )

    def _url(self, path: str) -> URL:
        base = self._base
        if path.startswith(BESIDE_VERSION):
            base, path = base.rpartition("/")[0], path[len(BESIDE_VERSION) - 1 :]
        return URL(base + path, encoded=True)

    def _open_session(self) -> aiohttp.ClientSession:
        session = self._session
        if session is None:
            if self._closed:
                raise UpstreamError(f"{self.provider}: the provider is closed")
            session = self._session = aiohttp.ClientSession(
                connector=Connector(
                    limit=self._max_connections,
                    keepalive_timeout=_KEEP_ALIVE_S,
                    ttl_dns_cache=60,
                    ssl=self._ssl,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, connect=self.limits.connect_s),
                read_bufsize=_READ_BUFFER_BYTES,
                trust_env=False,
            )
        return session

    async def aclose(self) -> None:
        """Closes every connection, also those in use. May be called again."""
        self._closed = True
        self._posts.clear()
        self._whole.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _is_header_value(text: str) -> bool:
    return len(text) <= 512 and text.isascii() and text.isprintable()


def _checked_base(provider: str, base_url: str) -> str:
    try:
        url = URL(base_url)
    except ValueError as error:
        raise ValueError(f"providers.{provider}.base_url: not a URL") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"providers.{provider}.base_url: must start with http:// or https:// and name a host")
    if url.user is not None or url.query_string or url.fragment:
        raise ValueError(f"providers.{provider}.base_url: no user, query or fragment is allowed here")
    return str(url).rstrip("/")


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


def _trusting(settings: ProviderSettings) -> ssl.SSLContext:
    """A context that trusts the configured authorities and no others."""
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(
            f"providers.{settings.name}.ca_file: {settings.ca_file} holds no readable certificate"
        ) from error


def _outgoing_headers(settings: ProviderSettings, auth: Mapping[str, str], host: str) -> CIMultiDict[str]:
    """Everything that every request carries; what is not built here does not leave."""
    headers = CIMultiDict({"host": host, "accept": "application/json", "accept-encoding": "gzip, deflate"})
    headers["user-agent"] = settings.user_agent
    for name, value in auth.items():
        if not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"providers.{settings.name}.api_key: it holds characters that no header can carry")
        headers[name] = value
    for name, value in settings.headers.items():
        if name.lower() in _OURS:
            raise ValueError(f"providers.{settings.name}.headers: {name} is set by the gateway itself")
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"providers.{settings.name}.headers: {name!r} or its value is no HTTP header")
        headers[name] = value
    return headers
