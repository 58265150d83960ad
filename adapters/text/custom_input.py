"""Calls of custom tools, whose input is any text, by models that write the arguments of functions: the text comes as
the one member of a JSON object, and is read out of it while it arrives.

What is no such object is given as it stands, so nothing is lost. The same however the text is cut.
"""

import json
import re
from typing import Final

from adapters.call_objects import INPUT_MEMBER

__all__ = ["InputReader"]

_HEAD: Final = re.compile(rf'\s*\{{\s*"{INPUT_MEMBER}"\s*:\s*"')
_BEGINNINGS: Final = re.compile(
    rf'\s*(?:\{{\s*(?:"(?:{"|".join(INPUT_MEMBER[:n] for n in range(len(INPUT_MEMBER) + 1))})'
    rf'|(?:"{INPUT_MEMBER}"\s*(?::\s*)?)?)?)?'
)
"""What may yet become the head."""
_NOTHING: Final = re.compile(r"\s*\{\s*\}\s*")
_PIECE: Final = re.compile(r'[^"\\]+|\\(?:u[0-9a-fA-F]{4}|[^u])|(")')
_HIGH, _LOW = range(0xD800, 0xDC00), range(0xDC00, 0xE000)


class InputReader:
    """The input of one call out of its arguments."""

    def __init__(self) -> None:
        self._held = ""
        self._is_inside = False
        self._is_over = False
        self._is_raw = False
        self._high = ""
        """An escape of the first half of a character."""

    def feed(self, text: str) -> str:
        if self._is_raw or self._is_over:
            return text if self._is_raw else ""
        self._held += text
        if not self._is_inside:
            head = _HEAD.match(self._held)
            if head is None:
                return "" if _BEGINNINGS.fullmatch(self._held) else self._as_it_stands()
            self._held = self._held[head.end() :]
            self._is_inside = True
        return self._inside()

    def flush(self) -> str:
        """What was held back, at the end of the call."""
        held, self._held = self._high + self._held, ""
        self._high = ""
        if self._is_over or _NOTHING.fullmatch(held):
            return ""
        return held

    def _as_it_stands(self) -> str:
        if _NOTHING.fullmatch(self._held) or self._held.strip() == "{":
            return ""
        self._is_raw = True
        held, self._held = self._held, ""
        return held

    def _inside(self) -> str:
        """The text up to the closing quote, or up to an escape that is not whole."""
        given: list[str] = []
        at = 0
        while (piece := _PIECE.match(self._held, at)) is not None:
            at = piece.end()
            if piece.group(1):
                given.append(self._lone_half())
                self._is_over = True
                break
            given.append(self._decoded(piece.group()))
        self._held = "" if self._is_over else self._held[at:]
        return "".join(given)

    def _decoded(self, piece: str) -> str:
        code = int(piece[2:], 16) if piece.startswith("\\u") else 0
        if self._high and code in _LOW:
            whole, self._high = self._high + piece, ""
            return str(json.loads(f'"{whole}"'))
        before = self._lone_half()
        if code in _HIGH:
            self._high = piece
            return before
        if not piece.startswith("\\"):
            return before + piece
        if code in _LOW:
            return f"{before}\ufffd"
        try:
            return before + str(json.loads(f'"{piece}"'))
        except ValueError:  # no escape of JSON
            return before + piece

    def _lone_half(self) -> str:
        half, self._high = self._high, ""
        return "\ufffd" if half else ""
