"""The W3C's headers: a good one is read and written back, a bad one is as none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.traceparent import RemoteTrace, incoming, outgoing

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 1))
def test_what_is_written_is_read(trace_id: int, span_id: int, flags: int) -> None:
    headers = dict(outgoing(trace_id, span_id, flags, "vendor=1"))
    assert incoming(headers) == RemoteTrace(trace_id, span_id, flags, "vendor=1")


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
    ],
)
def test_a_header_that_is_not_the_standard_s_is_ignored(sent: str) -> None:
    assert incoming({"traceparent": sent}) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert incoming({"traceparent": f"cc-{TRACE}-{SPAN}-01-more"}) is not None


def test_a_state_that_no_header_may_carry_is_left_behind() -> None:
    found = incoming({"traceparent": f"00-{TRACE}-{SPAN}-00", "tracestate": "a=\x01"})
    assert found is not None
    assert found.state is None
