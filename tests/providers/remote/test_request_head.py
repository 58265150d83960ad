"""What leaves in a head: the same headers on the short way and on the long one, and no line that was not meant."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from adapters.canonical.errors import InvalidRequest, UpstreamAuth
from providers.client_key import BEARER, CLIENT_KEY, KeyHeader, OwnKey
from providers.remote.request_head import RequestHeads, rendered
from providers.trace_context import TRACE
from tests.providers.remote.calls import settings

KEY = "of-the-gateway"
PARENT = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"


def heads(key: str | None = KEY, key_header: KeyHeader | None = BEARER, **changes: object) -> RequestHeads:
    return RequestHeads(settings(**{"api_key": key, **changes}), "host:1", key_header, through={})  # type: ignore[arg-type]


def fields(head: bytes) -> dict[str, str]:
    """By name as it was sent; each once."""
    first, *lines = head.decode("utf-8", "surrogateescape").split("\r\n")
    assert first == "POST /v1/a HTTP/1.1"
    assert lines[-2:] == ["", ""]
    found = dict(line.split(": ", 1) for line in lines[:-2])
    assert len({name.lower() for name in found}) == len(lines) - 2
    return found


@contextmanager
def traced(*headers: tuple[str, str]) -> Iterator[None]:
    token = TRACE.set(headers)
    try:
        yield
    finally:
        TRACE.reset(token)


@contextmanager
def own_key(secret: str, provider: str = "tiny") -> Iterator[None]:
    token = CLIENT_KEY.set(OwnKey(secret, provider))
    try:
        yield
    finally:
        CLIENT_KEY.reset(token)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("request_id", [None, "req-1"])
def test_the_short_way_and_the_long_one_send_the_same(stream: bool, request_id: str | None) -> None:
    built = heads(headers={"X-Team": "a"})
    with traced(("traceparent", PARENT)):
        for _ in range(2):
            short = built.post("/v1/a", 7, request_id, None, stream=stream)
            assert fields(short) == fields(built.post("/v1/a", 7, request_id, {}, stream=stream))
            assert fields(short) == dict(built.of_post(7, request_id, None, stream=stream))
    found = fields(short)
    assert (found["content-length"], found["X-Team"], found["traceparent"]) == ("7", "a", PARENT)
    assert found.get("x-request-id") == request_id
    assert found["accept-encoding"] == ("identity" if stream else "gzip, deflate")


def test_headers_of_one_call_replace_those_of_all() -> None:
    built = heads(headers={"X-Version": "1"})
    assert fields(built.post("/v1/a", 7, None, {"x-version": "2"}, stream=True))["x-version"] == "2"
    assert fields(built.post("/v1/a", 7, None, None, stream=True))["X-Version"] == "1"


def test_a_trace_replaces_one_that_is_configured() -> None:
    built = heads(headers={"Traceparent": "mine"})
    with traced(("traceparent", PARENT)):
        assert fields(built.post("/v1/a", 7, None, None, stream=True))["traceparent"] == PARENT
    assert fields(built.post("/v1/a", 7, None, None, stream=True))["Traceparent"] == "mine"


def test_a_clients_own_key_goes_out_alone_and_is_not_kept_for_others() -> None:
    built = heads()
    with own_key("of-the-client"):
        assert fields(built.post("/v1/a", 7, None, None, stream=True))["authorization"] == "Bearer of-the-client"
    assert fields(built.post("/v1/a", 7, None, None, stream=True))["authorization"] == f"Bearer {KEY}"


def test_a_key_for_another_provider_stops_the_call_unless_no_key_is_needed() -> None:
    with own_key("of-the-client", "another"):
        with pytest.raises(UpstreamAuth):
            heads().post("/v1/a", 7, None, None, stream=True)
        with pytest.raises(UpstreamAuth):
            heads(key_header=None).post("/v1/a", 7, None, None, stream=True)
        assert "authorization" not in fields(heads(None).post("/v1/a", 7, None, None, stream=True))


def test_only_so_many_targets_are_kept() -> None:
    built = heads()
    for number in range(200):
        assert built.post(f"/{number}", 7, None, None, stream=True).startswith(b"POST /%d HTTP/1.1\r\n" % number)
    assert len(built._kept) == 64


@pytest.mark.parametrize("target", ["/a b", "/a\r\nx: y", "/é", "", "a", "/a\x7f"])
def test_a_path_that_no_request_can_carry_is_refused(target: str) -> None:
    with pytest.raises(InvalidRequest):
        heads().post(target, 7, None, None, stream=True)


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "a\rb", "a\0b"])
def test_a_value_that_would_break_out_of_its_line_is_refused_on_every_way(value: str) -> None:
    with pytest.raises(InvalidRequest):
        rendered("GET", "/a", {"x-a": value})
    with pytest.raises(InvalidRequest):
        heads().post("/v1/a", 7, None, {"x-a": value}, stream=True)
    with traced(("tracestate", value)), pytest.raises(InvalidRequest):
        heads().post("/v1/a", 7, None, None, stream=True)
    with own_key(value), pytest.raises(InvalidRequest):
        heads().post("/v1/a", 7, None, None, stream=True)


def test_bytes_of_a_clients_key_that_are_no_text_go_out_as_they_came() -> None:
    with own_key(b"k\xff".decode("utf-8", "surrogateescape")):
        assert b"Bearer k\xff\r\n" in heads().post("/v1/a", 7, None, None, stream=True)
