"""What a client is told of an upstream's failure."""

import pytest

from adapters.canonical.errors import UpstreamAuth, UpstreamInternal
from adapters.upstream_errors import upstream_failure


@pytest.mark.parametrize("message", [None, "", 7, {"a": 1}])
def test_the_status_stands_for_a_message_that_is_none(message: object) -> None:
    assert upstream_failure(UpstreamInternal, message, status=500).message == "the upstream answered 500"
    assert upstream_failure(UpstreamInternal, message, status=None).message == "the upstream answered with an error"


def test_a_message_is_told_up_to_a_bound() -> None:
    assert upstream_failure(UpstreamInternal, "x" * 100_000, status=500).message == "x" * 2000


def test_what_concerns_the_gateways_account_is_not_told() -> None:
    assert "sk-1" not in upstream_failure(UpstreamAuth, "bad key sk-1", status=401).message
