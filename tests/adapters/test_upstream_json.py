"""Bodies of an upstream that cannot be read."""

import pytest
from msgspec.json import Decoder

from adapters.canonical.errors import BadUpstreamResponse
from adapters.upstream_json import read_body

_decode = Decoder(dict[str, list[float]]).decode


def test_a_body_of_the_type_is_decoded() -> None:
    assert read_body(_decode, b'{"a":[1]}', "numbers") == {"a": [1.0]}


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"a":["x"]}', b'{"\xff":[1]}', b'{"a":' + b"[" * 100_000])
def test_any_other_body_is_the_upstreams_fault_and_says_what_was_expected(body: bytes) -> None:
    with pytest.raises(BadUpstreamResponse, match="the upstream sent no numbers"):
        read_body(_decode, body, "numbers")


def test_a_body_nested_without_end_is_the_upstreams_fault_as_well() -> None:
    with pytest.raises(BadUpstreamResponse):
        read_body(Decoder().decode, b"[" * 100_000, "numbers")
