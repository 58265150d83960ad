"""An OAuth token for Vertex AI, from whatever Google's own library finds: a service account, a user, the machine.

`google-auth` is imported when the first provider needs it. Getting a token blocks, so a thread does it.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from adapters.canonical.errors import UpstreamAuth

__all__ = ["GoogleToken"]

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_EARLY_S = 300.0
"""A token is got anew so long before it ends."""
_DEFAULT_LIFE_S = 3600.0


class GoogleToken:
    """The token of the surroundings' own account, kept until it ends. Several callers at once make one call."""

    def __init__(self, provider: str) -> None:
        """Raises ImportError where the library is not installed."""
        try:
            import google.auth
            import google.auth.transport.requests
        except ImportError as error:
            raise ImportError(
                f"providers.{provider}: Vertex AI without an api_key needs google-auth; "
                "install llm-protocol-gateway[google]"
            ) from error
        self._library: Any = google.auth
        self._transport: Any = google.auth.transport.requests.Request
        self._provider = provider
        self._credentials: Any = None
        self._token = ""
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def get(self) -> str:
        """Raises UpstreamAuth where no account is found, or where it gets no token."""
        async with self._lock:
            if time.time() >= self._until:
                try:
                    await asyncio.to_thread(self._refresh)
                except self._library.exceptions.GoogleAuthError as error:
                    raise UpstreamAuth(f"{self._provider}: no token from Google, {type(error).__name__}") from error
            return self._token

    def _refresh(self) -> None:
        if self._credentials is None:
            self._credentials, _ = self._library.default(scopes=[_SCOPE])
        self._credentials.refresh(self._transport())
        expiry = self._credentials.expiry  # naive, in UTC
        life_s = _DEFAULT_LIFE_S
        if expiry is not None:
            life_s = (expiry.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()
        self._token = str(self._credentials.token)
        self._until = time.time() + max(0.0, life_s - _EARLY_S)
