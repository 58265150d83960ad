"""W3C Trace Context (level 1, 2021): the headers that a client sends, and those that upstreams get."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SAMPLED", "RemoteTrace", "incoming", "outgoing"]

SAMPLED = 1
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE = re.compile(r"[\x20-\x7e]{1,512}")


@dataclass(frozen=True, slots=True)
class RemoteTrace:
    """What a client works for. Ids are numbers other than 0."""

    trace_id: int
    span_id: int
    flags: int
    state: str | None = None

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """As they are passed on where the gateway makes no spans of its own."""
        return outgoing(self.trace_id, self.span_id, self.flags, self.state)


def incoming(headers: Mapping[str, str]) -> RemoteTrace | None:
    """The client's trace; None: it sent none, or one that cannot be read, which is to be ignored."""
    sent = headers.get("traceparent")
    if sent is None:
        return None
    match = _PARENT.fullmatch(sent.strip())
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5] is not None):
        return None
    trace_id, span_id = int(match[2], 16), int(match[3], 16)
    if not trace_id or not span_id:
        return None
    state = headers.get("tracestate")
    kept = state if state is not None and _STATE.fullmatch(state) else None
    return RemoteTrace(trace_id, span_id, int(match[4], 16) & SAMPLED, kept)


def outgoing(trace_id: int, span_id: int, flags: int, state: str | None) -> tuple[tuple[str, str], ...]:
    """The headers of a call that span `span_id` makes."""
    parent = ("traceparent", f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    return (parent,) if state is None else (parent, ("tracestate", state))
