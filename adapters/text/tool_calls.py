"""Finds a model's tool calls in a stream of text.

Owns the forms in which models write calls, one row a format. A call is a JSON object with a name and its arguments.
Arguments are given out while they arrive, as the model wrote them: nothing is repaired and nothing is written anew.
What turns out to be no call is text, and so is a call of a tool that nobody declared. Knows no models and no requests.

Once a call is announced it stays one: if its arguments never end, all that follows is arguments. What surrounds them
(the marks, the line breaks next to them, the object's other keys) belongs to the form and is not given out.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import orjson

from adapters.text.growing_text import LINE_BREAKS, WHITESPACE, GrowingText, Waits

__all__ = [
    "MAX_DEPTH",
    "TOOL_FORMATS",
    "CallArguments",
    "CallFinished",
    "CallPiece",
    "CallStarted",
    "TextPiece",
    "ToolCallParser",
    "ToolFormat",
]

MAX_DEPTH: Final = 128
"""Deepest nesting of a value that is held until it is whole; a deeper one makes no call. It bounds how often text is
read again. Arguments that go out as they come need no bound."""

_NO_ARGUMENTS: Final = "{}"
_ARGUMENT_KEYS: Final = ("arguments", "parameters")
_SCALAR_ENDS: Final = WHITESPACE | frozenset(",}]")


class ToolFormat(NamedTuple):
    """Calls stand between `start` and `end` (which may be empty), alone or one behind the other.

    is_list: they are the members of a JSON array. leads: the answer may also begin with a call, without `start`.
    """

    start: str
    end: str = ""
    is_list: bool = False
    leads: bool = False


TOOL_FORMATS: Mapping[str, ToolFormat] = {
    "hermes": ToolFormat("<tool_call>", "</tool_call>"),
    "llama3_json": ToolFormat("<|python_tag|>", leads=True),
    "mistral": ToolFormat("[TOOL_CALLS]", is_list=True),
}


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


class _NotACall(Exception):
    """What was read on from the last thing given out is no call."""


class ToolCallParser:
    """The same however the text is cut into feeds.

    declared: the names that may be called. new_id: makes an id for a call. parallel: with False, only the first call
    is given out; the text between and behind the others still is.
    """

    def __init__(
        self, form: ToolFormat, declared: Collection[str], new_id: Callable[[], str], *, parallel: bool = True
    ) -> None:
        self._form = form
        self._declared = declared
        self._new_id = new_id
        self._parallel = parallel
        self._text = GrowingText()
        self._pieces: list[CallPiece] = []
        self._given = 0
        self._streams = False
        """The text from `_given` up to the cursor is arguments."""
        self._num_calls = 0
        self._parse = self._run()

    def feed(self, text: str) -> list[CallPiece]:
        self._text.append(text)
        return self._resume()

    def flush(self) -> list[CallPiece]:
        """What was held back, at the end of the text."""
        self._text.ended = True
        return self._resume()

    def _resume(self) -> list[CallPiece]:
        next(self._parse, None)
        if self._streams:
            self._give_arguments()
        self._text.drop(self._given)
        pieces, self._pieces = self._pieces, []
        return pieces

    def _run(self) -> Waits[None]:
        text, form = self._text, self._form
        if form.leads and (yield from text.skip(WHITESPACE)) == "{":
            yield from self._calls(0)
        text.at = self._given
        while not text.ended or text.at < text.end:
            found = text.find(form.start)
            if found is None:
                text.at = text.settled(form.start)
                self._give_text(text.at)
                if not text.ended:
                    yield
            else:
                self._give_text(text.without_breaks(found))
                text.at = found + len(form.start)
                yield from self._calls(text.at)

    def _calls(self, behind_mark: int) -> Waits[None]:
        """The calls behind a mark, and the mark that closes them. Without any, all up to `behind_mark` is text."""
        text, before = self._text, self._given
        try:
            yield from (self._members() if self._form.is_list else self._objects())
        except _NotACall:
            is_whole = False
        else:
            is_whole = True
        if self._given == before:
            self._give_text(behind_mark)
            text.at = behind_mark
            return
        text.at = self._given
        if self._form.end:
            yield from text.skip(WHITESPACE)
            is_whole = yield from text.goes_on_with(self._form.end)
            if is_whole:
                text.at += len(self._form.end)
                self._given = text.at
        text.at = self._given
        if is_whole:
            yield from text.skip(LINE_BREAKS)
            self._given = text.at

    def _members(self) -> Waits[None]:
        """The array's members."""
        text = self._text
        yield from self._over("[")
        while True:
            yield from self._call()
            if (yield from text.skip(WHITESPACE)) != ",":
                break
            text.at += 1
        yield from self._over("]")
        self._given = text.at

    def _objects(self) -> Waits[None]:
        """Calls, with white space or semicolons between them."""
        text = self._text
        yield from self._call()
        while (character := (yield from text.skip(WHITESPACE))) in ("{", ";"):
            if character == ";":
                text.at += 1
            else:
                yield from self._call()

    def _call(self) -> Waits[None]:
        """One call. A fault raises _NotACall; what was given out by then stays given out."""
        text = self._text
        name: str | None = None
        arguments: str | None = None
        is_announced = False
        yield from self._over("{")
        while (character := (yield from text.skip(WHITESPACE))) != "}":
            key = _decoded((yield from self._string()))
            yield from self._over(":")
            character = yield from text.skip(WHITESPACE)
            if is_announced:
                yield from self._value(character)
            elif key == "name" and name is None:
                name = self._known((yield from self._string()))
            elif key in _ARGUMENT_KEYS and arguments is None and name is not None and character == "{":
                is_announced = True
                yield from self._stream_arguments(name)
            elif key in _ARGUMENT_KEYS and arguments is None:
                arguments = _arguments((yield from self._value(character)))
            else:
                yield from self._value(character)
            if not is_announced and name is not None and arguments is not None:
                is_announced = True
                self._give_call(name, arguments)
            if (yield from text.skip(WHITESPACE)) != ",":
                break
            text.at += 1
        yield from self._over("}")
        if name is None:
            raise _NotACall
        if not is_announced:
            self._give_call(name, _NO_ARGUMENTS)
        self._given = text.at

    def _stream_arguments(self, name: str) -> Waits[None]:
        """The object at the cursor, given out as it comes. The closing mark ends it even where it is not closed."""
        self._announce(name)
        self._streams = True
        is_whole = yield from self._nested(self._form.end, is_bounded=False)
        self._give_arguments()
        self._streams = False
        self._give(CallFinished())
        if not is_whole:
            raise _NotACall

    def _known(self, raw: str) -> str:
        """A declared name, from the JSON of one."""
        name = _decoded(raw)
        if name not in self._declared or not name:
            raise _NotACall
        return name

    def _over(self, expected: str) -> Waits[None]:
        """Moves behind this character, and the white space before it."""
        if (yield from self._text.skip(WHITESPACE)) != expected:
            raise _NotACall
        self._text.at += 1

    def _value(self, first: str) -> Waits[str]:
        """The JSON of the value at the cursor. Scalars are taken as they come."""
        text = self._text
        start = text.at
        if first == '"':
            return (yield from self._string())
        if first in ("{", "["):
            if not (yield from self._nested("", is_bounded=True)):
                raise _NotACall
        else:
            while (character := (yield from text.peek())) not in _SCALAR_ENDS:
                if not character or character in '"{[:':
                    raise _NotACall
                text.at += 1
            if text.at == start:
                raise _NotACall
        return text.between(start, text.at)

    def _string(self) -> Waits[str]:
        """The JSON of the string at the cursor."""
        text = self._text
        start = text.at
        if (yield from text.peek()) != '"' or not (yield from self._rest_of_string()):
            raise _NotACall
        return text.between(start, text.at)

    def _rest_of_string(self) -> Waits[bool]:
        """Moves from an opening quote behind the closing one; False where the text ends before it."""
        text = self._text
        text.at += 1
        while character := (yield from text.peek()):
            text.at += 1
            if character == '"':
                return True
            if character == "\\":
                if not (yield from text.peek()):
                    return False
                text.at += 1
        return False

    def _nested(self, end_mark: str, *, is_bounded: bool) -> Waits[bool]:
        """Moves behind the object or array at the cursor; False where the text or `end_mark` comes first."""
        text = self._text
        depth = 0
        while character := (yield from text.peek()):
            if character == '"':
                if not (yield from self._rest_of_string()):
                    return False
                continue
            if end_mark and character == end_mark[0] and (yield from text.goes_on_with(end_mark)):
                return False
            text.at += 1
            if character in "{[":
                depth += 1
                if is_bounded and depth > MAX_DEPTH:
                    raise _NotACall
            elif character in "}]":
                depth -= 1
                if not depth:
                    return True
        return False

    def _announce(self, name: str) -> None:
        """All up to the cursor belongs to the call."""
        self._num_calls += 1
        self._given = self._text.at
        if self._parallel or self._num_calls == 1:
            self._give(CallStarted(self._new_id(), name))

    def _give_call(self, name: str, arguments: str) -> None:
        self._announce(name)
        self._give(CallArguments(arguments))
        self._give(CallFinished())

    def _give_arguments(self) -> None:
        at = self._text.at
        if at > self._given:
            self._give(CallArguments(self._text.between(self._given, at)))
            self._given = at

    def _give(self, piece: CallPiece) -> None:
        if self._parallel or self._num_calls == 1:
            self._pieces.append(piece)

    def _give_text(self, end: int) -> None:
        if end > self._given:
            self._pieces.append(TextPiece(self._text.between(self._given, end), self._given))
            self._given = end


def _decoded(raw: str) -> str:
    """The text of a JSON string. One that is none, or that no UTF-8 can hold, makes no call."""
    try:
        text: str = orjson.loads(raw)
    except ValueError as error:
        raise _NotACall from error
    return text


def _arguments(raw: str) -> str:
    """The arguments of a whole value: an object as it is, the text of a string that holds one; null and "" are none."""
    if raw.startswith('"'):
        raw = _decoded(raw).strip()
    if raw in ("", "null"):
        return _NO_ARGUMENTS
    if not raw.startswith("{"):
        raise _NotACall
    return raw
