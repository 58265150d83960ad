"""Structural tags: a tree of text, tags, schemas and grammars that a client wrote, as the expression of a grammar.

Owns both forms that servers take: a list of `structures` with their `triggers`, and the tree under `format` (xgrammar's
documentation of structural tags, 2026-08). Formats that speak of single tokens, and schemas in a style other than
JSON, are refused by name.

An expression is made together with what ends it. Text that may be anything is read up to there, so the end belongs to
it, and every other expression has it appended.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from providers.local.grammar_text import GrammarWriter, literal

__all__ = ["structural_tag"]

_MAX_TIMES: Final = 10_000
_Ends = Sequence[str]


def structural_tag(writer: GrammarWriter, raw: bytes, path: str) -> str:
    """The expression for a tag object as JSON. Raises InvalidRequest or UnsupportedParameter, naming the place."""
    tag = orjson.loads(raw)
    if not isinstance(tag, dict):
        raise InvalidRequest.at(path, "expected an object")
    reader = _TagReader(writer)
    if "format" in tag:
        return reader.read(tag["format"], f"{path}.format", ())
    return reader.structures(tag, path)


class _TagReader:
    def __init__(self, writer: GrammarWriter) -> None:
        self._writer = writer
        self._kinds: Mapping[str, Callable[[dict[str, Any], str, _Ends], str]] = {
            "const_string": self._const_string,
            "json_schema": self._json_schema,
            "regex": self._regex,
            "grammar": self._grammar,
            "any_text": self._any_text,
            "sequence": self._sequence,
            "or": self._or,
            "optional": self._optional,
            "star": self._star,
            "plus": self._plus,
            "repeat": self._repeat,
            "tag": self._tag,
            "triggered_tags": self._triggered_tags,
            "tags_with_separator": self._tags_with_separator,
        }

    def structures(self, tag: dict[str, Any], path: str) -> str:
        """The older form: text with tags of JSON in it."""
        tags = []
        for place, one in enumerate(_get(tag, "structures", list, path)):
            at = f"{path}.structures[{place}]"
            if not isinstance(one, dict):
                raise InvalidRequest.at(at, "expected an object")
            content = self._writer.schema(one.get("schema") or {}, f"{at}.schema")
            tags.append((_get(one, "begin", str, at), f"{content} {literal(_get(one, 'end', str, at))}"))
        return self._triggered(tags, _texts(tag, "triggers", path), path, ())

    def read(self, found: object, path: str, ends: _Ends) -> str:
        """The expression for one format and what ends it."""
        if not isinstance(found, dict):
            raise InvalidRequest.at(path, "expected an object")
        kind = _get(found, "type", str, path)
        reader = self._kinds.get(kind)
        if reader is None:
            raise UnsupportedParameter.at(f"{path}.type", f"{kind} is not supported")
        return reader(found, path, ends)

    def _const_string(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        return self._ended(literal(_get(found, "value", str, path)), ends)

    def _json_schema(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        if found.get("style", "json") != "json" or found.get("any_order"):
            name = "any_order" if found.get("any_order") else "style"
            raise UnsupportedParameter.at(f"{path}.{name}", "not supported")
        schema = found.get("json_schema")
        if not isinstance(schema, dict | bool):
            raise InvalidRequest.at(f"{path}.json_schema", "expected a schema")
        return self._ended(self._writer.schema(schema, f"{path}.json_schema"), ends)

    def _regex(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        return self._ended(self._writer.regex(_get(found, "pattern", str, path), f"{path}.pattern"), ends)

    def _grammar(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        return self._ended(self._writer.grammar(_get(found, "grammar", str, path), f"{path}.grammar"), ends)

    def _any_text(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        for name in ("max_tokens", "max_chars"):
            if found.get(name) is not None:
                raise UnsupportedParameter.at(f"{path}.{name}", "not supported")
        excluded = _texts(found, "excludes", path) if found.get("excludes") else []
        others = [text for text in excluded if text not in ends]
        if ends and others:
            raise UnsupportedParameter.at(f"{path}.excludes", "other texts than the end of the tag")
        if ends:
            return self._writer.text_until(ends)
        return self._writer.text_without(others) if others else self._writer.text()

    def _sequence(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        elements = self._elements(found, path)
        last = len(elements) - 1
        parts = [
            self.read(one, f"{path}.elements[{place}]", ends if place == last else ())
            for place, one in enumerate(elements)
        ]
        return self._writer.rule(" ".join(filter(None, parts)))

    def _or(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        elements = enumerate(self._elements(found, path))
        return self._writer.rule(
            " | ".join(self.read(one, f"{path}.elements[{place}]", ends) or '""' for place, one in elements)
        )

    def _optional(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        content = self.read(found.get("content"), f"{path}.content", ends)
        return self._writer.rule(f"{content} | {_alternatives(ends)}") if ends else f"({content})?"

    def _star(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        return self._ended(f"({self.read(found.get('content'), f'{path}.content', ())})*", ends)

    def _plus(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        return self._ended(f"({self.read(found.get('content'), f'{path}.content', ())})+", ends)

    def _repeat(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        low, high = _get(found, "min", int, path), _get(found, "max", int, path)
        if not 0 <= low <= _MAX_TIMES or not (high == -1 or low <= high <= _MAX_TIMES):
            raise InvalidRequest.at(path, f"min and max must be from 0 to {_MAX_TIMES} in order")
        times = f"{{{low},{'' if high == -1 else high}}}"
        return self._ended(f"({self.read(found.get('content'), f'{path}.content', ())}){times}", ends)

    def _tag(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        begin, rest = self._parts(found, path)
        return self._ended(f"{literal(begin)} {rest}", ends)

    def _parts(self, found: dict[str, Any], path: str) -> tuple[str, str]:
        """The text that a tag begins with, and the expression for all behind it."""
        for name in ("begin", "end"):
            if isinstance(found.get(name), dict):
                raise UnsupportedParameter.at(f"{path}.{name}", "tokens are not supported")
        own = _texts(found, "end", path) if isinstance(found.get("end"), list) else [_get(found, "end", str, path)]
        content = self.read(found.get("content"), f"{path}.content", [end for end in own if end])
        return _get(found, "begin", str, path), f"({content})?" if own == [""] and not content else content

    def _triggered_tags(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        if found.get("excludes"):
            raise UnsupportedParameter.at(f"{path}.excludes", "not supported")
        return self._triggered(
            self._tags(found, path),
            _texts(found, "triggers", path),
            path,
            ends,
            at_least_one=found.get("at_least_one") is True,
            stops=found.get("stop_after_first") is True,
        )

    def _triggered(
        self,
        tags: Sequence[tuple[str, str]],
        triggers: Sequence[str],
        path: str,
        ends: _Ends,
        *,
        at_least_one: bool = False,
        stops: bool = False,
    ) -> str:
        """Text in which each trigger begins a tag."""
        writer = self._writer
        groups: dict[str, list[str]] = {trigger: [] for trigger in triggers}
        for begin, rest in tags:
            trigger = next((one for one in triggers if one and begin.startswith(one)), None)
            if trigger is None:
                raise InvalidRequest.at(f"{path}.triggers", f"none begins the tag {begin[:60]!r}")
            groups[trigger].append(f"{literal(begin[len(trigger) :])} {rest}")
        used = {trigger: writer.rule(" | ".join(group)) for trigger, group in groups.items() if group}
        one = writer.rule(" | ".join(f"{writer.text_until([trigger])} {rule}" for trigger, rule in used.items()))
        text = writer.text_until(ends) if ends else writer.text()
        if not at_least_one:
            return writer.rule(f"{one} {_alternatives(ends)} | {text}" if stops else f"({one})* {text}")
        first = writer.rule(" | ".join(f"{literal(trigger)} {rule}" for trigger, rule in used.items()))
        return self._ended(first, ends) if stops else writer.rule(f"{first} ({one})* {text}")

    def _tags_with_separator(self, found: dict[str, Any], path: str, ends: _Ends) -> str:
        one = self._writer.rule(" | ".join(f"{literal(begin)} {rest}" for begin, rest in self._tags(found, path)))
        separator = literal(_get(found, "separator", str, path))
        many = one if found.get("stop_after_first") is True else f"{one} ({separator} {one})*"
        return self._ended(many if found.get("at_least_one") is True else f"({many})?", ends)

    def _tags(self, found: dict[str, Any], path: str) -> list[tuple[str, str]]:
        tags = []
        for place, tag in enumerate(_get(found, "tags", list, path)):
            at = f"{path}.tags[{place}]"
            if not isinstance(tag, dict):
                raise InvalidRequest.at(at, "expected an object")
            tags.append(self._parts(tag, at))
        if not tags:
            raise InvalidRequest.at(f"{path}.tags", "the list must not be empty")
        return tags

    def _elements(self, found: dict[str, Any], path: str) -> list[Any]:
        elements: list[Any] = _get(found, "elements", list, path)
        if not elements:
            raise InvalidRequest.at(f"{path}.elements", "the list must not be empty")
        return elements

    def _ended(self, expression: str, ends: _Ends) -> str:
        return self._writer.rule(f"{expression} {_alternatives(ends)}") if ends else expression


def _alternatives(ends: _Ends) -> str:
    return f"({' | '.join(map(literal, ends))})" if ends else ""


def _get(found: Mapping[str, Any], name: str, kind: type[Any], path: str) -> Any:
    value = found.get(name)
    if type(value) is not kind:
        wanted = {str: "a text", list: "a list", int: "an integer"}[kind]
        raise InvalidRequest.at(f"{path}.{name}", f"expected {wanted}")
    return value


def _texts(found: Mapping[str, Any], name: str, path: str) -> list[str]:
    values = _get(found, name, list, path)
    if not values or not all(isinstance(value, str) and value for value in values):
        raise InvalidRequest.at(f"{path}.{name}", "expected a list of texts, none empty")
    return values  # type: ignore[no-any-return]
