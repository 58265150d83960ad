"""What a model thought as one text, for clients that know no pieces of a summary: a blank line stands between them."""

from adapters.canonical.events import ReasoningDelta
from adapters.canonical.messages import Reasoning

__all__ = ["ThoughtText", "thought_text"]

_BETWEEN = "\n\n"


def thought_text(thought: Reasoning) -> str:
    return thought.text or _BETWEEN.join(thought.summary)


class ThoughtText:
    """The same of a stream, delta by delta."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, int], int] = {}

    def of(self, event: ReasoningDelta) -> str:
        if not event.summary:
            return event.text
        place = (event.choice, event.part)
        begins = event.piece != self._pieces.get(place, event.piece)
        self._pieces[place] = event.piece
        return _BETWEEN + event.text if begins else event.text
