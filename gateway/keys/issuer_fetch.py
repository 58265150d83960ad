"""Fetches what an issuer of tokens publishes. The address comes from run.yaml, or from the issuer named there."""

import httpx

from adapters.canonical.errors import NotReady

__all__ = ["fetch"]

_TIMEOUT_S = 5.0
_MAX_BYTES = 1_000_000


async def fetch(url: str) -> bytes:
    """Raises NotReady."""
    try:
        async with (
            httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client,
            client.stream("GET", url) as answer,
        ):
            answer.raise_for_status()
            body = b""
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > _MAX_BYTES:
                    raise NotReady("what the issuer of tokens answers is too large", code="issuer_unavailable")
            return body
    except httpx.HTTPError as error:
        raise NotReady("the issuer of tokens can't be reached", code="issuer_unavailable") from error
