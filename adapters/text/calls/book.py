"""What was found of calls in a growing text, and where the text stands that nobody has given out yet.

Owns the order of what is given out: text, calls, arguments. Knows no syntax of calls.
"""

import json
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from adapters.text.growing_text import GrowingText, Waits

__all__ = [
    "MAX_NAME",
    "NO_ARGUMENTS",
    "CallArguments",
    "CallBook",
    "CallFinished",
    "CallPiece",
    "CallStarted",
    "NotACall",
    "ParameterTypes",
    "TextPiece",
    "escaped",
    "no_types",
]

NO_ARGUMENTS: Final = "{}"
MAX_NAME: Final = 512
"""Characters that the name of a tool or of a parameter may have: a longer one makes no call."""


class TextPiece(NamedTuple):
    """A piece of the text as it came, not empty. `start` is its place, in characters from the beginning."""

    text: str
    start: int


class CallStarted(NamedTuple):
    id: str
    name: str


class CallArguments(NamedTuple):
    text: str


class CallFinished(NamedTuple):
    pass


CallPiece = TextPiece | CallStarted | CallArguments | CallFinished

ParameterTypes = Callable[[str], Mapping[str, frozenset[str]]]
"""From a tool's name to the JSON types that its parameters may have. One of which nothing is known is left out."""


class NotACall(Exception):
    """What was read on from the last thing given out is no call."""


def no_types(name: str) -> Mapping[str, frozenset[str]]:
    """Of tools whose schemas say nothing."""
    return {}


class CallBook:
    """The calls and the text around them, in their order.

    `declared`: the names that may be called. `new_id` makes an id for a call. `parallel`: with False, only the first
    call is given out; the text between and behind the others still is.
    """

    def __init__(
        self,
        text: GrowingText,
        declared: Collection[str],
        new_id: Callable[[], str],
        *,
        types: ParameterTypes = no_types,
        parallel: bool = True,
    ) -> None:
        self.text = text
        self.types = types
        self.given = 0
        """All before this place was given out, or belongs to a form."""
        self._declared = declared
        self._new_id = new_id
        self._parallel = parallel
        self._streams = False
        """The text from `given` up to the cursor is arguments."""
        self._controls: list[int] = []
        self._ids: set[str] = set()
        self._num_calls = 0
        self._pieces: list[CallPiece] = []

    def take(self) -> list[CallPiece]:
        """What was found since the last time. Text that was given out is dropped."""
        if self._streams:
            self._give_streamed()
        self.text.drop(self.given)
        pieces, self._pieces = self._pieces, []
        return pieces

    def is_known(self, name: str) -> bool:
        return name in self._declared

    def known(self, name: str) -> str:
        """The name, if a tool has it. Raises NotACall."""
        if not name or not self.is_known(name):
            raise NotACall
        return name

    def announce(self, name: str, call_id: str | None = None) -> None:
        """A call begins; all up to the cursor belongs to it. `call_id`: the model's own."""
        self._num_calls += 1
        self.passed()
        if call_id is None or call_id in self._ids:
            call_id = self._new_id()
        self._ids.add(call_id)
        self._give(CallStarted(call_id, name))

    def passed(self) -> None:
        """What lies before the cursor belongs to a form, or was given out in other words."""
        self.given = self.text.at

    def withheld(self) -> bool:
        """Where the text was cut, what is left of it belongs to a call that nobody will hear of."""
        if not self.text.ended or not self.text.is_cut:
            return False
        self.text.at = self.text.end
        self.passed()
        return True

    def arguments(self, written: str) -> None:
        """A piece of the present call's arguments."""
        if written:
            self._give(CallArguments(written))

    def finish(self) -> None:
        """The present call ends."""
        self._give(CallFinished())

    def whole(self, name: str, arguments: str, call_id: str | None = None) -> None:
        """A call that is there at once."""
        self.announce(name, call_id)
        self.arguments(arguments)
        self.finish()

    def text_up_to(self, end: int) -> None:
        """What precedes this place and was not given out is text."""
        if end > self.given:
            self._pieces.append(TextPiece(self.text.between(self.given, end), self.given))
            self.given = end

    def streamed(self, moves: Waits[bool], controls: list[int] | None = None) -> Waits[bool]:
        """What `moves` moves the cursor over is arguments, given out as it comes. Gives what `moves` gives.

        controls: the places of characters that go out as JSON's escapes for them, from `moves`.
        """
        self._streams, self._controls = True, [] if controls is None else controls
        result = yield from moves
        self._give_streamed()
        self._streams = False
        return result

    def raw_up_to(self, mark: str) -> Waits[bool]:
        """What is before this mark is arguments as it stands; False where the text ends first. The mark stays."""
        return (yield from self.streamed(self._up_to(mark)))

    def raw_rest(self, mark: str) -> Waits[None]:
        """What cannot be read is arguments all the same, up to the mark that closes the calls. Ends the call.

        Raises NotACall, since nothing that follows is read as one call more.
        """
        yield from self.raw_up_to(mark)
        self.finish()
        raise NotACall

    def _up_to(self, mark: str) -> Waits[bool]:
        text = self.text
        while (found := text.find(mark) if mark else None) is None:
            text.at = text.settled(mark) if mark else text.end
            if text.ended:
                return False
            yield
        text.at = found
        return True

    def _give_streamed(self) -> None:
        written = [self.text.between(self.given, self.text.at)]
        if self._controls:
            ends = [*self._controls, self.text.at]
            written = [self.text.between(self.given, ends[0])]
            for place, end in pairwise(ends):
                written += (escaped(self.text.between(place, place + 1)), self.text.between(place + 1, end))
            self._controls.clear()
        self.arguments("".join(written))
        self.passed()

    def _give(self, piece: CallPiece) -> None:
        if self._parallel or self._num_calls == 1:
            self._pieces.append(piece)


def escaped(text: str) -> str:
    """The text as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
