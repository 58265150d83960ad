"""Why a choice ended. Each dialect owns one total table from its own words to these."""

from enum import Enum

__all__ = ["StopReason"]


class StopReason(Enum):
    """`value` is a stable word for logs and metrics, not a wire word."""

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
