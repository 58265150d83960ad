"""A prompt that does not fit may lose its oldest turns, where the client said so (`truncation: auto`).

A turn begins with a user's message. Instructions stay, wherever they stand, and so does the last turn. Half of what may
go goes at once, so that a long conversation takes few tries.
"""

from adapters.canonical.messages import DEVELOPER, SYSTEM, USER
from adapters.canonical.request import AUTO, Request

__all__ = ["shortened"]

_INSTRUCTIONS = (SYSTEM, DEVELOPER)


def shortened(request: Request) -> Request | None:
    """The request without the older half of its turns. None: it may not, or can't, be shorter."""
    messages = request.messages
    if request.truncation != AUTO or not messages:
        return None
    first = next((i for i, message in enumerate(messages) if message.role not in _INSTRUCTIONS), len(messages))
    starts = [i for i, message in enumerate(messages) if message.role == USER or i == first]
    if len(starts) < 2:
        return None
    kept_from = starts[len(starts) // 2]
    return request.with_messages(
        [(i, message) for i, message in enumerate(messages) if i >= kept_from or message.role in _INSTRUCTIONS]
    )
