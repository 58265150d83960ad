"""What a refusal of Google's servers means."""

import pytest

from adapters.canonical.errors import InvalidRequest, UpstreamRateLimited
from adapters.gemini.errors import parse_error

BODY = b'{"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}}'


@pytest.mark.parametrize("body", [BODY, b"[" + BODY + b"]", b"[" + BODY + b",\r\n{}]"])
def test_an_error_may_stand_in_a_list_as_a_stream_of_json_has_it(body: bytes) -> None:
    error = parse_error(429, body)
    assert (type(error), error.message) == (UpstreamRateLimited, "slow down")


@pytest.mark.parametrize("body", [b"[]", b"[5]", b"5", b"{}"])
def test_a_body_without_an_error_leaves_it_to_the_status(body: bytes) -> None:
    assert type(parse_error(400, body)) is InvalidRequest
