"""An OAuth token for Vertex AI, from whatever Google's own library finds: a service account, a user, the machine.

`google-auth` is imported when the first provider needs it.
"""

import time
from datetime import UTC
from typing import Any

from adapters.canonical.errors import UpstreamAuth
from providers.remote.account_token import AccountToken

__all__ = ["google_token"]

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_DEFAULT_LIFE_S = 3600.0


def google_token(provider: str) -> AccountToken:
    """Raises ImportError where the library is not installed."""
    try:
        import google.auth
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request
    except ImportError as error:
        raise ImportError(
            f"providers.{provider}: Vertex AI without an api_key needs google-auth; "
            "install llm-protocol-gateway[google]"
        ) from error
    library: Any = google.auth
    credentials: Any = None

    def get() -> tuple[str, float]:
        nonlocal credentials
        try:
            if credentials is None:
                credentials, _ = library.default(scopes=[_SCOPE])
            credentials.refresh(Request())
        except GoogleAuthError as error:
            raise UpstreamAuth(f"{provider}: no token from Google, {type(error).__name__}") from error
        expiry = credentials.expiry  # naive, in UTC
        end = time.time() + _DEFAULT_LIFE_S if expiry is None else expiry.replace(tzinfo=UTC).timestamp()
        return str(credentials.token), end

    return AccountToken(get)
