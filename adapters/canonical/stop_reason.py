"""Why a choice ended. Each dialect owns one total table from its own words to these."""

from enum import Enum

__all__ = ["GIVEN_UP", "StopReason", "confirmed"]


class StopReason(Enum):
    """`value` is a stable word for logs and metrics, not a wire word."""

    __hash__ = object.__hash__  # Enum's own is a call of Python

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    PAUSED = "paused"
    """The upstream wants the turn back; the provider sends it back within a limit."""
    ERROR = "error"
    CANCELLED = "cancelled"
    OTHER = "other"
    """An unknown upstream word; the raw word stands beside it."""


GIVEN_UP = frozenset((StopReason.ERROR, StopReason.CANCELLED))
"""Of an answer that broke off, which is an error and no finish."""

_AFTER_CALLS = {StopReason.STOP: StopReason.TOOL_CALLS}
_WITHOUT_CALLS = {StopReason.TOOL_CALLS: StopReason.STOP}


def confirmed(reason: StopReason, *, called: bool) -> StopReason:
    """What a word stands for, in the light of whether tools were called: some vendors say `stop` after calls, some
    the opposite after none."""
    return (_AFTER_CALLS if called else _WITHOUT_CALLS).get(reason, reason)
