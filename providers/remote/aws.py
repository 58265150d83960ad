"""What AWS needs beside HTTP: signatures (version 4) and its binary event stream, both botocore's.

botocore is imported when the first provider needs it. Finding and refreshing credentials may block: a thread does it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from adapters.canonical.errors import BadUpstreamResponse, UpstreamAuth

__all__ = ["AwsSignature", "EventStreamFrames", "require_botocore"]

_EVENT = b'{"%b":%b}'


def require_botocore(provider: str) -> None:
    """Raises ImportError, naming the extra that brings it."""
    try:
        import botocore.auth
        import botocore.eventstream  # noqa: F401
    except ImportError as error:
        raise ImportError(f"providers.{provider}: Bedrock needs botocore; install llm-protocol-gateway[aws]") from error


class AwsSignature:
    """Signs requests to Bedrock in one region with what the surroundings hold: variables, profiles, the machine."""

    def __init__(self, provider: str, base_url: str, *, region: str) -> None:
        self._provider = provider
        self._base_url = base_url.rstrip("/")
        self._region = region
        self._credentials: Any = None

    async def sign(self, method: str, path: str, body: bytes) -> Mapping[str, str]:
        """See `providers.remote.http.Sign`; a body is JSON. Raises UpstreamAuth where no credentials are found."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        try:
            frozen = await asyncio.to_thread(self._frozen)
        except BotoCoreError as error:
            raise UpstreamAuth(f"{self._provider}: no credentials from AWS, {type(error).__name__}") from error
        content = {} if method == "GET" else {"content-type": "application/json"}
        request = AWSRequest(method, self._base_url + path, content, body)
        SigV4Auth(frozen, "bedrock", self._region).add_auth(request)
        return {name.lower(): value for name, value in request.headers.items()}

    def _frozen(self) -> Any:
        from botocore.exceptions import NoCredentialsError
        from botocore.session import get_session

        if self._credentials is None:
            self._credentials = get_session().get_credentials()
        if self._credentials is None:
            raise NoCredentialsError
        return self._credentials.get_frozen_credentials()


class EventStreamFrames:
    """AWS's event stream taken apart (`adapters.sse_answer.FrameDecoder`): each event as `{"<type>": payload}`."""

    def __init__(self) -> None:
        from botocore.eventstream import EventStreamBuffer, ParserError

        self._buffer = EventStreamBuffer()
        self._broken = ParserError
        self._failure: Exception | None = None

    def feed(self, data: bytes) -> list[bytes]:
        self._raise_failure()
        self._buffer.add_data(data)
        found: list[bytes] = []
        try:
            for message in self._buffer:
                found.append(_framed(message.headers, message.payload))
        except self._broken as error:
            self._failure = error  # after the events before it
            if not found:
                self._raise_failure()
        return found

    def close(self) -> list[bytes]:
        """An event that is not whole has no checksum: it does not count."""
        self._raise_failure()
        return []

    def _raise_failure(self) -> None:
        if self._failure is not None:
            kind = type(self._failure).__name__
            raise BadUpstreamResponse(f"the upstream's event stream is broken: {kind}") from self._failure


def _framed(headers: Mapping[str, Any], payload: bytes) -> bytes:
    kind = str(headers.get(":event-type") or headers.get(":exception-type") or headers.get(":error-code") or "error")
    if headers.get(":message-type") != "event" and not kind.endswith("Exception"):
        kind = "error"
    return _EVENT % (kind.replace('"', "").encode(), payload or b"{}")
