"""Retry hints and excerpts, value by value."""

import errno
import socket
import ssl
from email.utils import formatdate

import pytest

from adapters.canonical.errors import InvalidRequest, UpstreamAuth, UpstreamOverloaded
from providers.remote.failure import MAX_RETRY_AFTER_S, error_page, excerpt_of, no_connection, retry_after_s

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "30"}, 30),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after-ms": "29500", "retry-after": "30"}, 29.5),
        ({"retry-after-ms": "soon", "retry-after": "30"}, 30),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e3"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "999999999"}, MAX_RETRY_AFTER_S),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, MAX_RETRY_AFTER_S),
        ({"retry-after": "Fri, 99 Dec 99999 23:59:59 GMT"}, None),
    ],
)
def test_the_hint_is_sane_seconds_or_nothing(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


def _tls_error() -> ssl.SSLError:
    error = ssl.SSLError(1, "wrong version number")
    error.reason = "WRONG_VERSION_NUMBER"
    return error


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "to 10.0.0.1"), "cannot connect (Connection refused)"),
        (TimeoutError(), "no connection within the connect limit"),
        (socket.gaierror(-2, "x"), "its host name does not resolve"),
        (_tls_error(), "TLS failed, WRONG_VERSION_NUMBER; is it an http:// address?"),
    ],
)
def test_what_kept_a_connection_from_being_made_is_told_without_the_address(error: Exception, why: str) -> None:
    assert no_connection("up", error).message == f"up: {why}"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (b"", ""),
        (b"<html><head><title>502</title></head><body><h1>Bad</h1> gateway</body></html>", "Bad gateway"),
        (b"<script>alert(1)</script>text", "text"),
        (b"a <!-- hidden --> b", "a b"),
        (b"broken <b", "broken"),
        (b"1 > 0", "1 0"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"x" * 500, "x" * 120 + "..."),
    ],
)
def test_an_excerpt_is_short_and_without_markup(page: bytes, text: str) -> None:
    assert excerpt_of(page) == text


def test_a_page_about_credentials_is_not_quoted() -> None:
    error = error_page("up", UpstreamAuth("x"), 401, b"key sk-1 is wrong")
    assert (type(error), error.message, error.code) == (UpstreamAuth, "up: status 401", "upstream_auth")


def test_a_page_keeps_the_class_that_the_status_has() -> None:
    assert type(error_page("up", UpstreamOverloaded("x"), 503, b"busy")) is UpstreamOverloaded
    error = error_page("up", InvalidRequest("x"), 400, b"no")
    assert (type(error), error.message, error.code) == (InvalidRequest, "up: status 400, no", "bad_upstream_response")
