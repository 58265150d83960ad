"""Writes one grammar in llguidance's language, out of pieces that clients wrote and pieces that are the gateway's.

Owns the spelling: rules, terminals, schemas and foreign grammars by name. An expression is a text that may stand in the
body of a rule. Knows no requests; nothing is compiled here.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from llguidance import regex_to_lark
from llguidance.gbnf_to_lark import any_to_lark

from adapters.canonical.errors import InvalidRequest
from adapters.json_fields import nesting_exceeds
from providers.local.json_schemas import for_compiler
from providers.local.string_grammar import STRING_CLOSES, STRING_OPENS

__all__ = ["Grammar", "GrammarWriter", "Written", "literal", "read_schema"]

MAX_DEPTH: Final = 100
"""Of a schema. The compiler's own reader stops at 128."""
_ANY_TEXT: Final = r"/(.|\n)*/"
_SOME_TEXT: Final = r"/(.|\n)+/"
_SPACE: Final = r"[ \t]?|\r?\n[ \t]{0,40}"
"""Between the tokens of JSON: what models write, and no more, or a small one goes on with blanks for ever."""
_START: Final = "start"
_DEFINES: Final = "::="
"""What only GBNF has."""
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL)
_NO_FORCING: Final = '%llguidance {"no_forcing": true}'


@dataclass(frozen=True, slots=True)
class Written:
    """Something that a client wrote, at `path` of its request. `schema` is set where it is one."""

    path: str
    text: str
    options: Mapping[str, Any]
    schema: Mapping[str, Any] | bool | None = None

    @property
    def alone(self) -> str:
        """The grammar of this alone."""
        return self.with_schema(self.schema) if self.schema is not None else _document([{"lark_grammar": self.text}])

    def with_schema(self, schema: object) -> str:
        """The grammar of this schema in its place."""
        return _document([{"json_schema": _with_options(schema, self.options)}])


@dataclass(frozen=True, slots=True)
class Grammar:
    """`has_strings`: texts with grammars of their own stand in it as JSON strings."""

    text: str
    written: tuple[Written, ...]
    has_strings: bool = False


class GrammarWriter:
    """One grammar that grows by the pieces that it is asked for. marks: texts that are special tokens of the model."""

    def __init__(self, marks: Mapping[str, int] | None = None) -> None:
        self._marks = marks or {}
        special = map(re.escape, sorted(self._marks, key=len, reverse=True))
        self._pieces = re.compile("(" + "|".join((*special, r"\n")) + ")")
        self._lines: list[str] = []
        self._others: list[dict[str, object]] = []
        self._written: list[Written] = []
        self._has_strings = False

    def schema(self, schema: Any, path: str, *, lenient: bool = False, space: str | None = None) -> str:
        """JSON of this schema. lenient: what cannot be enforced is left out; else it is refused.

        space: a regex for what stands between JSON's tokens ("": nothing).
        """
        options: dict[str, Any] = {"whitespace_pattern": _SPACE if space is None else space}
        if space == "":
            options = {"whitespace_flexible": False}
        if lenient:
            options |= {"lenient": True, "coerce_one_of": True}
        schema = for_compiler(schema, lenient=lenient)
        whole = _with_options(schema, options)
        if isinstance(schema, dict | bool):
            self._written.append(Written(path, json.dumps(schema), options, schema))
        return self._other({"json_schema": whole})

    def regex(self, pattern: str, path: str) -> str:
        body = f"/{regex_to_lark(pattern)}/"
        self._written.append(Written(path, f"start: {body}", {}))
        return self.rule(body)

    def grammar(self, text: str, path: str) -> str:
        """A whole grammar in Lark's syntax (it has a rule `start`), or in GBNF (`root ::= ...`)."""
        try:
            lark = any_to_lark(_ESCAPE.sub(_as_character, text) if _DEFINES in text else text)
        except Exception as error:  # the converter raises nothing more precise
            raise InvalidRequest.at(path, f"{' '.join(str(error).split())[:300]}") from error
        self._written.append(Written(path, lark, {}))
        return self._other({"lark_grammar": lark})

    def string(self, body: str) -> str:
        """A JSON string of a text that follows this expression, one of the client's own grammars."""
        self._has_strings = True
        return f"{STRING_OPENS} {body} {STRING_CLOSES}"

    def choice(self, choices: Iterable[str]) -> str:
        """One of these texts."""
        return self.terminal(" | ".join(map(literal, choices)))

    def spelled(self, text: str) -> str:
        """Exactly this text, with its special tokens as such; the empty expression for none.

        Line breaks stand by themselves: a piece that begins like another one, and goes on, would be read in its place.
        """
        return " ".join(
            f"<[{self._marks[piece]}]>" if piece in self._marks else literal(piece)
            for piece in self._pieces.split(text)
            if piece
        )

    def is_special(self, mark: str) -> bool:
        return mark in self._marks

    def text(self) -> str:
        """Any text, maybe none."""
        return f"{self.terminal(_SOME_TEXT)}?"

    def text_through(
        self, mark: str, *, unlike: Sequence[str] = (), low: int | None = None, high: int | None = None
    ) -> str:
        """Any text up to this mark of the model, and the mark. unlike, low, high: as of `text_until`."""
        if self.is_special(mark):
            return f"{self.text_unlike(unlike)} {self.spelled(mark)}"
        return self.text_until([mark], unlike=unlike, low=low, high=high)

    def text_until(
        self, ends: Sequence[str], *, unlike: Sequence[str] = (), low: int | None = None, high: int | None = None
    ) -> str:
        """Any text up to the first of these ends, and the end. unlike: expressions for what it does not begin with.

        low, high: how many characters it has.
        """
        text = _ANY_TEXT
        if low or high is not None:
            text = f"/(.|\\n){{{low or 0},{'' if high is None else high}}}/"
        alternatives = " | ".join(map(literal, ends))
        return self.rule(self.terminal(f"{text} ({alternatives}){_unlike(unlike)}"), "lazy")

    def text_unlike(self, beginnings: Sequence[str]) -> str:
        """Any text, maybe none, that begins with none of these expressions."""
        return f"{self.terminal(_SOME_TEXT + _unlike(beginnings))}?"

    def text_without(self, parts: Sequence[str]) -> str:
        """Any text, maybe none, that has none of these texts in it."""
        alternatives = " | ".join(map(literal, parts))
        return f"{self.terminal(f'{_SOME_TEXT} & ~({_ANY_TEXT} ({alternatives}) {_ANY_TEXT})')}?"

    def rule(self, body: str, attribute: str = "") -> str:
        """The name of a new rule."""
        name = f"r{len(self._lines)}"
        self._lines.append(f"{name}[{attribute}]: {body}" if attribute else f"{name}: {body}")
        return name

    def terminal(self, body: str) -> str:
        """The name of a new terminal: read as one piece, however long."""
        name = f"T{len(self._lines)}"
        self._lines.append(f"{name}: {body}")
        return name

    def finish(self, start: str) -> Grammar:
        # Of tokens with the same text, a forced one would be given alone.
        options = (_NO_FORCING,) if self._has_strings else ()
        own = "\n".join((*options, f"{_START}: {start}", *self._lines))
        document = _document([{"name": _START, "lark_grammar": own}, *self._others])
        return Grammar(document, tuple(self._written), self._has_strings)

    def _other(self, grammar: dict[str, object]) -> str:
        name = f"g{len(self._others)}"
        self._others.append({"name": name, **grammar})
        return f"@{name}"


def _as_character(escape: re.Match[str]) -> str:
    """The character that a numbered escape of GBNF stands for: the converter loses zeros of the number."""
    digits = escape[1] or escape[2]
    code = int(digits, 16) if digits else 0
    if not digits or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        return escape[0]
    return f"\\x{code:02x}" if code < 0x80 else chr(code)


def literal(text: str) -> str:
    """The expression for exactly this text; the empty one for none."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def read_schema(raw: bytes, path: str) -> Any:
    """A client's schema. Numbers stay as exact as Python's. Raises InvalidRequest."""
    if nesting_exceeds(raw, MAX_DEPTH):
        raise InvalidRequest.at(path, f"nested too deep; the limit is {MAX_DEPTH}")
    try:
        return json.loads(raw)
    except ValueError as error:
        raise InvalidRequest.at(path, str(error)) from error


def _with_options(schema: object, options: Mapping[str, Any]) -> object:
    """The options go before those that a client put into its schema."""
    if schema is True:
        schema = {}
    return {**schema, "x-guidance": options} if isinstance(schema, dict) else schema


def _document(grammars: Sequence[Mapping[str, object]]) -> str:
    return json.dumps({"grammars": grammars}, ensure_ascii=False)


def _unlike(beginnings: Sequence[str]) -> str:
    return f" & ~(({' | '.join(beginnings)}) {_ANY_TEXT})" if beginnings else ""
