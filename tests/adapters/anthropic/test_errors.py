"""What an upstream's error object of the Messages API means, beside its HTTP status."""

import orjson
import pytest

from adapters.anthropic.errors import error_from_event, parse_error
from adapters.canonical.errors import (
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    Unprocessable,
    UpstreamAuth,
    UpstreamInternal,
    UpstreamOverloaded,
    UpstreamRateLimited,
)


def body(kind: str, message: str = "no") -> bytes:
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": message}})


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (400, "invalid_request_error", InvalidRequest),
        (413, "invalid_request_error", InvalidRequest),
        (422, "invalid_request_error", Unprocessable),
        (401, "invalid_request_error", UpstreamAuth),
        (403, "invalid_request_error", UpstreamAuth),
        (404, "invalid_request_error", ModelNotFound),
        (429, "invalid_request_error", UpstreamRateLimited),
        (500, "invalid_request_error", UpstreamInternal),
        (529, "invalid_request_error", UpstreamOverloaded),
        (400, "overloaded_error", UpstreamOverloaded),
        (500, "authentication_error", UpstreamAuth),
    ],
)
def test_a_type_goes_before_the_status_unless_it_says_no_more_than_that_something_is_wrong(
    status: int, kind: str, expected: type[GatewayError]
) -> None:
    assert type(parse_error(status, body(kind))) is expected


def test_the_text_about_a_refused_key_stays_here_whatever_its_type_is() -> None:
    error = parse_error(401, body("invalid_request_error", "Incorrect API key: sk-ant-secret"))
    assert "sk-ant-secret" not in error.message


def test_an_error_inside_a_200_is_what_its_type_says() -> None:
    assert type(error_from_event(body("invalid_request_error"))) is InvalidRequest
