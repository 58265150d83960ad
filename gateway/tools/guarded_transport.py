"""HTTP of the mcp package through the guarded fetcher: what a request names is dialled by its rules."""

from collections.abc import AsyncIterator

import aiohttp
import httpx2

from adapters.canonical.errors import InvalidRequest
from gateway.fetching.guarded import GuardedFetcher

__all__ = ["GuardedTransport"]

_NOT_PASSED_ON = frozenset(("content-encoding", "content-length", "transfer-encoding"))


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Each answer may be as large as `fetch.max_mb`."""

    def __init__(self, fetcher: GuardedFetcher) -> None:
        self._fetcher = fetcher

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises httpx2.TransportError."""
        headers = {name: value for name, value in request.headers.items() if name != "accept-encoding"}
        try:
            answer = await self._fetcher.open(request.method, str(request.url), headers, await request.aread())
        except InvalidRequest as error:
            raise httpx2.ConnectError(error.message, request=request) from error
        except (aiohttp.ClientError, OSError) as error:
            raise httpx2.ConnectError("it cannot be reached", request=request) from error
        return httpx2.Response(
            answer.status,
            headers=[(name, value) for name, value in answer.headers.items() if name.lower() not in _NOT_PASSED_ON],
            stream=_Body(answer, self._fetcher.max_bytes),
            request=request,
        )


class _Body(httpx2.AsyncByteStream):
    def __init__(self, answer: aiohttp.ClientResponse, max_bytes: int) -> None:
        self._answer = answer
        self._left = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._answer.content.iter_any():
                self._left -= len(piece)
                if self._left < 0:
                    raise httpx2.ReadError("its answer is too large")
                yield piece
        except aiohttp.ClientError as error:
            raise httpx2.ReadError("its answer broke off") from error

    async def aclose(self) -> None:
        self._answer.close()
