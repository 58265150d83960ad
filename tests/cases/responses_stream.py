"""A stream of the Responses API, checked as a state machine and put together as clients do."""

from collections.abc import Sequence
from typing import Any

from tests.adapters.openai.responses.event_order import check_events

__all__ = ["final_response"]


def final_response(events: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The response of the terminal event. The order of events, their names, numbers and ids hold what is promised."""
    assert all(data["type"] == name for name, data in events)
    return check_events([data for _, data in events])
