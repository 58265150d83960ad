"""The Redis that tests use: at the address in GATEWAY_TEST_REDIS, a database that they may empty."""

import os

import pytest

__all__ = ["REDIS_URL", "needs_redis"]

REDIS_URL = os.environ.get("GATEWAY_TEST_REDIS", "")
needs_redis = pytest.mark.skipif(not REDIS_URL, reason="GATEWAY_TEST_REDIS names no Redis server")

if not REDIS_URL and os.environ.get("GATEWAY_TEST_SERVERS") == "required":
    raise RuntimeError("GATEWAY_TEST_REDIS is not set, and these tests must not be skipped here")
