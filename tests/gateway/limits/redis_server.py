"""The Redis that tests use: at the address in GATEWAY_TEST_REDIS, a database that they may empty.

Processes of one run have a database each: the second one takes that of the next number, and so on.
"""

import os
from urllib.parse import urlsplit

import pytest

__all__ = ["REDIS_URL", "needs_redis"]


def _own(url: str) -> str:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    address = urlsplit(url)
    return address._replace(path=f"/{int(address.path[1:] or 0) + worker}").geturl() if url else ""


REDIS_URL = _own(os.environ.get("GATEWAY_TEST_REDIS", ""))
needs_redis = pytest.mark.skipif(not REDIS_URL, reason="GATEWAY_TEST_REDIS names no Redis server")

if not REDIS_URL and os.environ.get("GATEWAY_TEST_SERVERS") == "required":
    raise RuntimeError("GATEWAY_TEST_REDIS is not set, and these tests must not be skipped here")
