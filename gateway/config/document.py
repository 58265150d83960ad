"""YAML text -> a tree that knows its lines. Owns YAML; refuses to know which keys there are.

Scalars follow YAML 1.2's core schema: only `true` and `false` are booleans, so `off`, `on` and `no` stay text, and keys
are always text. Anchors and aliases work; tags, merge keys and several documents in one file do not. Everything is
bounded: the size of the text, the depth, and (in `resolve`) the number of nodes after aliases are expanded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from gateway.config.faults import Fault, Location

__all__ = ["MAX_TEXT_CHARS", "MappingNode", "Node", "ScalarNode", "SequenceNode", "parse_document", "parse_scalar"]

MAX_TEXT_CHARS = 2_000_000
MAX_DEPTH = 64

# libyaml reads eight times as fast as PyYAML itself; all wheels of PyYAML have it.
_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MAX_DIGITS = 400  # far past any number that means something, and short of Python's own limit


@dataclass(frozen=True, slots=True)
class ScalarNode:
    text: str
    plain: bool
    """Written without quotes, so it may stand for a number, a boolean or nothing."""
    line: int


@dataclass(frozen=True, slots=True)
class SequenceNode:
    items: "tuple[Node, ...]"
    line: int


@dataclass(frozen=True, slots=True)
class MappingNode:
    entries: "tuple[tuple[str, int, Node], ...]"
    """(key, line of the key, value), in the order of the file, each key once."""
    line: int


Node = ScalarNode | SequenceNode | MappingNode


def parse_scalar(text: str) -> str | int | float | bool | None:
    """What the plain scalar `text` stands for in YAML 1.2's core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= _MAX_DIGITS:
        if _INT.fullmatch(text):
            return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
    return text


def parse_document(text: str) -> tuple[Node | None, list[Fault]]:
    """The tree of the one document in `text`, and what is wrong with it; no tree if it could not be read to its end."""
    if len(text) > MAX_TEXT_CHARS:
        return None, [Fault((), 1, f"the file is too large, expected at most {MAX_TEXT_CHARS} characters")]
    try:
        return _Builder(text).build()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        return None, [Fault((), line, f"not valid YAML: {_describe(error)}{_hint(text, line)}")]
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return None, [Fault((), line, f"not valid YAML: the character {chr(error.character)!r} is not allowed")]
    except _Refused as refused:
        return None, [refused.fault]


def _describe(error: yaml.MarkedYAMLError) -> str:
    return ", ".join(part for part in (error.context, error.problem) if part)


def _hint(text: str, line: int) -> str:
    lines = text.splitlines()
    around = lines[max(0, line - 2) : line]
    return '; a ${...} inside { } or [ ] needs quotes: "${...}"' if any("${" in part for part in around) else ""


class _Refused(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


_Opening = yaml.ScalarEvent | yaml.SequenceStartEvent | yaml.MappingStartEvent


class _Builder:
    """Builds the tree from the parser's events, in one pass."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=_LOADER))
        self._anchors: dict[str, Node] = {}
        self._faults: list[Fault] = []

    def build(self) -> tuple[Node | None, list[Fault]]:
        self._next()  # the stream's start
        event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            return None, [Fault((), 1, "the file is empty, expected at least 'version: 1'")]
        root = self._node(self._next(), ())
        self._next()  # the document's end
        event = self._next()
        if not isinstance(event, yaml.StreamEndEvent):
            raise _Refused(Fault((), _line(event), "a second document starts here, expected one"))
        if isinstance(root, ScalarNode) and root.plain and not root.text:
            return None, [Fault((), 1, "the file is empty, expected at least 'version: 1'")]
        if not isinstance(root, MappingNode):
            return None, [Fault((), root.line, "expected a mapping at the top level ('version: 1', 'providers: ...')")]
        return root, self._faults

    def _next(self) -> yaml.Event:
        return next(self._events)

    def _node(self, event: yaml.Event, at: Location) -> Node:
        line = _line(event)
        if len(at) > MAX_DEPTH:
            raise _Refused(Fault(at[:4], line, f"nested too deeply, expected at most {MAX_DEPTH} levels"))
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _Refused(Fault(at, line, f"the alias '*{event.anchor}' has no anchor before it"))
            return self._anchors[event.anchor]
        if not isinstance(event, _Opening):
            raise _Refused(Fault(at, line, "expected a value"))
        node = self._fresh_node(event, at)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _fresh_node(self, event: _Opening, at: Location) -> Node:
        line = _line(event)
        if event.tag not in (None, "!"):
            self._faults.append(Fault(at, line, f"the YAML tag {event.tag!r} is not supported"))
        if isinstance(event, yaml.ScalarEvent):
            return ScalarNode(event.value, plain=not event.style and event.implicit[0], line=line)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(inner := self._next(), yaml.SequenceEndEvent):
                items.append(self._node(inner, (*at, len(items))))
            return SequenceNode(tuple(items), line)
        return self._mapping(at, line)

    def _mapping(self, at: Location, line: int) -> MappingNode:
        entries: dict[str, tuple[int, Node]] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key_line = _line(event)
            if not isinstance(event, yaml.ScalarEvent):
                raise _Refused(Fault(at, key_line, "a key must be plain text"))
            key = event.value
            value = self._node(self._next(), (*at, key))
            if key in entries:
                first = entries[key][0]
                self._faults.append(Fault((*at, key), key_line, f"duplicate key {key!r}, first given in line {first}"))
            elif key == "<<" and not event.style:
                self._faults.append(Fault((*at, key), key_line, "merge keys (<<) are not supported"))
            else:
                entries[key] = (key_line, value)
        return MappingNode(tuple((key, key_line, value) for key, (key_line, value) in entries.items()), line)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
