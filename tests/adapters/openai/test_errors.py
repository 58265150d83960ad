"""What an upstream's refusal means, and what of it a client is told."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import (
    ContentRefused,
    ContextOverflow,
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    Unprocessable,
    UpstreamAuth,
    UpstreamConflict,
    UpstreamError,
    UpstreamInternal,
    UpstreamOverloaded,
    UpstreamQuota,
    UpstreamRateLimited,
    UpstreamTimeout,
)
from adapters.openai.errors import parse_error, render_error


def refusal(status: int, **error: Any) -> GatewayError:
    return parse_error(status, json.dumps({"error": {"message": "m", **error}}).encode())


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, InvalidRequest),
        (401, UpstreamAuth),
        (402, UpstreamQuota),
        (403, UpstreamAuth),
        (404, ModelNotFound),
        (408, UpstreamTimeout),
        (409, UpstreamConflict),
        (413, InvalidRequest),
        (418, InvalidRequest),
        (422, Unprocessable),
        (429, UpstreamRateLimited),
        (500, UpstreamInternal),
        (501, UpstreamError),
        (503, UpstreamOverloaded),
        (504, UpstreamTimeout),
        (529, UpstreamOverloaded),
    ],
)
def test_each_status_has_its_error(status: int, expected: type[GatewayError]) -> None:
    for body in (b"", b"<html>", b"[", b"[]", b'{"error":null}', b'{"detail":"m"}', b'{"error":{"message":"m"}}'):
        error = parse_error(status, body)
        assert type(error) is expected
        assert error.message
        if isinstance(error, UpstreamError):
            assert error.upstream_status == status


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "context_length_exceeded", ContextOverflow),
        (400, "content_filter", ContentRefused),
        (400, "content_policy_violation", ContentRefused),
        (429, "insufficient_quota", UpstreamQuota),
        (400, "model_not_found", ModelNotFound),
        (400, "invalid_api_key", UpstreamAuth),
    ],
)
def test_the_upstreams_code_says_more_than_its_status(status: int, code: str, expected: type[GatewayError]) -> None:
    assert type(refusal(status, code=code)) is expected
    assert type(refusal(status, type=code)) is expected


def test_a_flat_error_object_is_read_too() -> None:
    error = parse_error(400, b'{"object":"error","message":"too long","type":"BadRequestError","param":"n","code":400}')
    assert (error.message, error.param, error.code) == ("too long", "n", None)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}], "m"),  # Google
        ({"detail": [{"loc": ["body", "messages", 0], "msg": "too long"}, {"msg": "x"}]}, "messages.0: too long; x"),
        ({"success": False, "errors": [{"code": 7000, "message": "m"}, {"message": "n"}]}, "m"),  # Cloudflare
        ({"error": {"message": "Provider returned error", "metadata": {"raw": "m"}}}, "Provider returned error: m"),
        ({"error": {"message": "m", "metadata": {"raw": {"a": 1}}}}, "m"),
        ([], "the upstream answered 400 without a readable error body"),
        ([{"detail": [7, {"msg": 7}]}], "the upstream answered 400"),
    ],
)
def test_what_a_host_says_is_told_wherever_it_stands(body: object, message: str) -> None:
    error = parse_error(400, json.dumps(body).encode())
    assert (type(error), error.message) == (InvalidRequest, message)


def test_what_concerns_the_gateways_account_is_not_told() -> None:
    for status in (401, 402, 403):
        error = refusal(status, message="key sk-secret of org-secret is bad", code="secret_code", param="secret")
        assert b"secret" not in render_error(error)


@pytest.mark.parametrize(
    "body", [b'{"error":{"message":"\xff"}}', b'{"error":' + b"[" * 100_000, rb'{"error":"\ud800"}']
)
def test_a_refusal_that_cannot_be_read_is_still_a_refusal(body: bytes) -> None:
    error = parse_error(500, body)
    assert (type(error), error.message) == (UpstreamInternal, "the upstream answered 500 without a readable error body")


def test_a_message_is_bounded() -> None:
    assert len(refusal(400, message="x" * 100_000).message) == 2000


def test_an_error_is_one_object_with_four_fields() -> None:
    found = json.loads(render_error(InvalidRequest("n: wrong", param="n")))
    assert found == {"error": {"message": "n: wrong", "type": "invalid_request_error", "param": "n", "code": None}}
