"""Errors that several parts of the gateway tell of itself."""

from adapters.canonical.errors import InternalError, NotReady

__all__ = ["internal_error", "shutting_down"]


def internal_error(request_id: str) -> InternalError:
    """A fault of our own, of which the log tells under this id."""
    return InternalError(f"an internal error happened; the gateway's log tells more under {request_id}")


def shutting_down() -> NotReady:
    """Nothing more is begun."""
    return NotReady("the gateway is shutting down", code="shutting_down")
