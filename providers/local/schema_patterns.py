"""Regular expressions of JSON Schemas, which are JavaScript's (ECMA-262), as the grammar compiler reads them: in the
syntax of Rust's regex crate.

What differs is what stands in a character class. JavaScript nests no classes and has no operators there, so `[` and
doubled `&&`, `--`, `~~` are characters. And a class that has every control character in it also lets a JSON string's
escaped quote and backslash through, whether it has these or not (llguidance 1.9): such a class loses U+0000.
"""

import re
from typing import Final

__all__ = ["as_rust", "as_written", "looks_around"]

_ESCAPE: Final = r"\\."
_BODY: Final = rf"(?:{_ESCAPE}|\[:\^?[a-z]+:\]|[^\]\\])*"
_CLASS: Final = re.compile(rf"(?P<outside>{_ESCAPE})|\[(?P<body>\^?\]?{_BODY})\]", re.DOTALL)
"""A class; what is escaped outside of one opens none. A bracket that stands first closes nothing."""
_PIECE: Final = re.compile(rf"{_ESCAPE}|\[:\^?[a-z]+:\]|\[|&&|--|~~", re.DOTALL)
_LITERAL: Final = {"[": r"\[", "&&": r"&\&", "--": r"-\-", "~~": r"~\~"}
_LOOKS: Final = re.compile(rf"\(\?<?[=!]|\\[bB1-9]|{_ESCAPE}", re.DOTALL)
_WIDENED: Final = re.compile(r"\[\[(.*?)\]--\\x00\]", re.DOTALL)


def as_rust(pattern: str) -> str:
    """The same expression. One that is none stays as it is, for the compiler to say so."""
    return _CLASS.sub(_written, pattern)


def _written(found: re.Match[str]) -> str:
    if found["outside"] is not None:
        return found["outside"]
    body = _PIECE.sub(lambda piece: _LITERAL.get(piece[0], piece[0]), found["body"])
    return rf"[[{body}]--\x00]"


def as_written(message: str) -> str:
    """A message of the compiler, with classes in it as their client wrote them."""
    return _WIDENED.sub(lambda found: f"[{found[1]}]", message)


def looks_around(pattern: str) -> bool:
    """Whether a pattern asks for what stands beside a place, or for the same again, which no grammar can."""
    return any(not found[0].startswith("\\") or found[0][1] in "bB123456789" for found in _LOOKS.finditer(pattern))
