"""Fetches what an issuer of tokens publishes. The address comes from run.yaml, or from the issuer named there."""

import aiohttp

from adapters.canonical.errors import NotReady
from gateway.fetching.whole_body import whole_body

__all__ = ["fetch"]

_TIMEOUT_S = 5.0
_MAX_BYTES = 1_000_000


async def fetch(url: str) -> bytes:
    """Raises NotReady."""
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"the issuer answered with {answer.status}")
            return await whole_body(answer.content.iter_any(), _MAX_BYTES)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NotReady("what the issuer of tokens publishes can't be fetched", code="issuer_unavailable") from error
