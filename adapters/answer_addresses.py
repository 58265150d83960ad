"""Addresses of media in answers: only those of the web, and data, reach a client, which may open what it gets."""

import re
from typing import Any

import orjson

from adapters.canonical.errors import BadUpstreamResponse

__all__ = ["check_addresses"]

_ALLOWED = re.compile(r"https?://|data:", re.IGNORECASE)
_ADDRESSES = ("url", "image_url", "fileUri")
_SHOWN = 40


def check_addresses(raw: bytes) -> None:
    """Looks at every address in a JSON value: under `url`, `image_url` and `fileUri`.

    Raises BadUpstreamResponse for one of another scheme, and for what is no JSON.
    """
    try:
        left: list[Any] = [orjson.loads(raw)]
    except orjson.JSONDecodeError as error:
        raise BadUpstreamResponse("the upstream's answer is not valid JSON") from error
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            left += value.values()
            for name in _ADDRESSES:
                _check(value.get(name))


def _check(address: object) -> None:
    if isinstance(address, str) and address and _ALLOWED.match(address) is None:
        told = f"an address that is none of http, https and data: {address[:_SHOWN]!r}"
        raise BadUpstreamResponse(f"the upstream's answer has a medium at {told}")
