"""One provider's HTTP: its connections, the heads that leave, and the limits until an answer's head is there.

Knows no dialect, no JSON and no vendor. Every exception that leaves is a GatewayError. What comes after the head is the
Answer's.
"""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping

from yarl import URL

from adapters.canonical.errors import NotReady, StaleConnection, UpstreamError
from providers.base import Limits, ProviderSettings
from providers.client_key import KeyHeader
from providers.remote.addresses import usual_path
from providers.remote.answer import Answer
from providers.remote.connection import Connection
from providers.remote.failure import FOREIGN, no_answer, no_connection
from providers.remote.origin import Origin
from providers.remote.pool import AllInUse, Pool, Way
from providers.remote.proxy import Proxy, Tunnel
from providers.remote.request_head import RequestHeads, rendered
from providers.remote.tls import ResumingContext, trusting
from providers.remote.wire_answer import Unanswered, WireAnswer
from providers.shared_limit import SharedLimit

__all__ = ["BESIDE_VERSION", "HttpClient", "Sign"]

BESIDE_VERSION = "/../"
"""How a path begins that lies beside the last folder of the base URL (its version), not below it."""
Sign = Callable[[str, str, bytes], Awaitable[Mapping[str, str]]]
"""Headers that prove, for a while, who sends this: the method, the path below the base URL, the body (empty where it
is sent while it arrives). Raises UpstreamAuth."""
_STALE_S = 1.0
"""A peer that had closed a kept connection before it read the request says so within this, a round trip at most."""


class HttpClient:
    """Calls of one provider. Opens no socket before the first one; belongs to the event loop of that call."""

    def __init__(
        self,
        settings: ProviderSettings,
        base_url: str,
        key_header: KeyHeader | None = None,
        *,
        sign: Sign | None = None,
        request_id_header: str = "x-request-id",
    ) -> None:
        """`key_header` is where keys go, the provider's and a client's own; None: nowhere, as calls are signed for the
        gateway's account, or a token of it goes with them (`sign`). `request_id_header` names its answers.

        Raises ValueError on settings that can't work.
        """
        self.provider = settings.name
        self.request_id_header = request_id_header
        self._sign = sign
        self.limits: Limits = settings.limits
        url = _checked_base(settings.name, base_url)
        self.doubt = _doubt(settings, url)
        """What a 404 may mean, as the end of its message."""
        self._base = url.raw_path.rstrip("/")
        host, port = url.raw_host or "", url.port or 0
        has_files = settings.ca_file is not None or settings.client_cert is not None  # which are read in any case
        tls = _tls(settings) if url.scheme == "https" or has_files else None
        proxy = _proxy(settings)
        through: Mapping[str, str] = {}
        self._way: Way
        if url.scheme == "https" and tls is not None:
            self._way = Origin(host, port, tls) if proxy is None else Tunnel(proxy, host, port, tls)
        elif proxy is None:
            self._way = Origin(host, port, None)
        else:
            self._way, through = proxy, proxy.headers
            self._base = f"{url.origin()}{self._base}"
        self._heads = RequestHeads(settings, url.host_port_subcomponent or "", key_header, through=through)
        self._max_connections = settings.max_connections
        self._pool: Pool | None = None
        self._first_token = SharedLimit(self.limits.first_token_s, _time_out)
        self._whole = SharedLimit(self.limits.whole_s, _time_out)
        self._closed = False

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer to a GET. Its body counts against the first-token limit."""
        if self._sign is not None:
            headers = {**(headers or {}), **await self._sign("GET", path, b"")}
        head = rendered("GET", self._target(path), self._heads.of_get(headers))
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
        if self._sign is not None:
            headers = {**(headers or {}), **await self._sign("POST", path, body)}
        head = self._heads.post(self._target(path), len(body), request_id, headers, stream=stream)
        return await self._ask(head, body, stream=stream)

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
        if self._sign is not None:
            headers = {**headers, **await self._sign(method, path, b"")}
        sent = self._heads.of_forwarded(headers, request_id)
        if body is not None and length is None:
            sent["transfer-encoding"] = "chunked"
        elif body is not None or method != "GET":
            sent["content-length"] = str(length or 0)
        head = rendered(method, self._target(path), sent)
        connection = await self._connection()
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = connection.send(head, b"", more=body is not None)
        try:
            if body is not None:
                await _send_rest(connection, answer, body, length)
            await answer.head
        except FOREIGN as error:
            raise self._failure(
                answer, error, may_be_stale=connection.was_used and loop.time() - began <= _STALE_S
            ) from error
        except BaseException:
            answer.close()
            raise
        return Answer(self.provider, answer, None, self.limits)

    async def _ask(self, head: bytes, body: bytes, *, stream: bool) -> Answer:
        """Raises StaleConnection as `_failure` has it."""
        connection = await self._connection()
        answer = connection.send(head, body)
        limit = self._first_token if stream else self._whole
        deadline = limit.watch(answer.head, answer.loop)
        try:
            await answer.head
        except FOREIGN as error:
            took_s = asyncio.get_running_loop().time() - (deadline - limit.limit_s)
            raise self._failure(answer, error, may_be_stale=connection.was_used and took_s <= _STALE_S) from error
        except BaseException:
            answer.close()
            raise
        finally:
            limit.forget(answer.head)
        return Answer(self.provider, answer, deadline if stream else None, self.limits)

    async def _connection(self) -> Connection:
        """One that is there, or a new one."""
        pool = self._pool or self._open_pool()
        try:
            return pool.idle() or await pool.connect()
        except AllInUse as error:
            why = f"{self.provider}: all its connections are in use ({self._max_connections}, max_connections)"
            raise NotReady(why, code="overloaded", retry_after_s=1) from error
        except FOREIGN as error:
            raise no_connection(self.provider, error) from error

    def _failure(self, answer: WireAnswer, error: Exception, *, may_be_stale: bool) -> UpstreamError:
        """StaleConnection where a kept connection ended at its peer at the very time when it was used again, as far as
        can be told: at once, and unanswered."""
        answer.close()
        if not may_be_stale or not isinstance(error, Unanswered):
            return no_answer(self.provider, error)
        if self._pool is not None:
            self._pool.drop_idle()  # they were kept for longer
        return StaleConnection(f"{self.provider}: a kept connection ended as it was used again")

    def _target(self, path: str) -> str:
        """What stands in a request's first line."""
        if path.startswith(BESIDE_VERSION):
            return self._base.rpartition("/")[0] + path[len(BESIDE_VERSION) - 1 :]
        return self._base + path

    def _open_pool(self) -> Pool:
        if self._closed:
            raise UpstreamError(f"{self.provider}: the provider is closed")
        self._pool = Pool(
            self._way,
            max_connections=self._max_connections,
            connect_s=self.limits.connect_s,
            turn_s=self.limits.first_token_s,
        )
        return self._pool

    async def aclose(self) -> None:
        """Closes every connection, also those in use. May be called again."""
        self._closed = True
        self._first_token.close()
        self._whole.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()


def _time_out(head: asyncio.Future[None]) -> None:
    if not head.done():
        head.set_exception(TimeoutError())


async def _send_rest(
    connection: Connection, answer: WireAnswer, body: AsyncIterable[bytes], length: int | None
) -> None:
    """Returns when the body went out, or need not: it was refused or answered before. Raises what `body` does."""
    sending = asyncio.ensure_future(connection.send_rest(body, length))
    try:
        await asyncio.wait((sending, answer.head), return_when=asyncio.FIRST_COMPLETED)
        if sending.done() or not (answer.ended or answer.status >= 300):
            await sending
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


def _doubt(settings: ProviderSettings, url: URL) -> str:
    usual = usual_path(settings.type)
    if not usual or url.path.strip("/"):
        return ""
    return f" (providers.{settings.name}.base_url has no path: should it end in {usual}?)"


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


def _proxy(settings: ProviderSettings) -> Proxy | None:
    """It may have a user and a password, so no message quotes it."""
    if settings.proxy is None:
        return None
    try:
        return Proxy(URL(settings.proxy), settings.ca_file)
    except ValueError as error:
        raise ValueError(
            f"providers.{settings.name}.proxy: must start with http:// or https:// and name a host"
        ) from error


def _tls(settings: ProviderSettings) -> ResumingContext:
    cert, key = settings.client_cert, settings.client_key
    try:
        context = trusting(settings.ca_file, shared=cert is None)
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(
            f"providers.{settings.name}.ca_file: {settings.ca_file} holds no readable certificate"
        ) from error
    if cert is not None:
        try:
            context.load_cert_chain(cert, key, password="")  # so that nobody is asked for one
        except OSError as error:
            raise ValueError(
                f"providers.{settings.name}.client_cert: {cert} and {key or cert} are no certificate with its key"
            ) from error
    return context
