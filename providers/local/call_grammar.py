"""How calls of each form are written, as expressions of a grammar: what `adapters.text.calls` reads, and no more of it
than the models' own templates write.

JSON arguments follow the tool's schema as a whole. Where a form has a place for each parameter, its values do: texts by
their choices and lengths, everything else by its schema.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from adapters.call_objects import INPUT_MEMBER
from adapters.canonical.errors import UnsupportedParameter
from adapters.text.calls.gemma import GemmaCalls
from adapters.text.calls.json_objects import json_list, plain_json
from adapters.text.calls.named_json import NamedJson, kimi_name
from adapters.text.calls.pythonic import Pythonic
from adapters.text.calls.tagged import Tagged
from adapters.text.tool_calls import ToolFormat
from providers.local.custom_tools import InputGrammar
from providers.local.grammar_text import GrammarWriter, literal

__all__ = ["Arguments", "CallGrammar", "begun_call", "json_arguments"]

_NUMBER: Final = r"/[0-9]{1,3}/"
_KEY: Final = r"/[A-Za-z_][A-Za-z0-9_-]{0,63}/"
_KEYWORDS_OF_TEXT: Final = ("pattern", "format")
"""Of a text without JSON's quotes, these can't be enforced."""
_FLAGGED: Final = "<｜DSML｜"
"""Tags that say whether their value is a text."""


class Arguments(NamedTuple):
    """A schema at `path` of the request. `lenient`: what cannot be enforced is left out. `input`: what the text has to
    follow that is the one argument of a custom tool."""

    schema: Any
    path: str
    lenient: bool
    input: InputGrammar | None = None

    def get(self, keyword: str) -> Any:
        return self.schema.get(keyword) if isinstance(self.schema, dict) else None


class _Block(NamedTuple):
    """What stands around calls: `opening` CALL (`between` CALL)* `closing`, between the marks of the form.

    is_single: each call has marks of its own, with `apart` between one and the next.
    """

    opening: str = ""
    between: str = ""
    closing: str = ""
    is_single: bool = False
    apart: str = ""


def _block(form: ToolFormat) -> _Block:
    syntax = form.syntax
    if isinstance(syntax, NamedJson):
        is_single = not syntax.before
        return _Block(between="\n" if syntax.between.startswith("\n") else "", is_single=is_single)
    if isinstance(syntax, Pythonic):
        return _Block("[", ", ", "]") if syntax.is_list else _Block("\n", "\n", "\n")
    if isinstance(syntax, GemmaCalls):
        return _Block(is_single=True)
    if isinstance(syntax, Tagged):
        if syntax.breaks or not syntax.call_end:
            around = "\n" if syntax.breaks else ""
            return _Block(around, "", around, is_single=True, apart="\n")
        return _Block("\n", "\n", "\n")
    if syntax in (json_list, plain_json):
        return _Block("[", ", ", "]")
    return _Block(form.padding, "; ", form.padding, is_single=bool(form.end), apart="\n")


def begun_call(form: ToolFormat, name: str, as_json: str) -> str | None:
    """A call of this tool up to where its JSON arguments begin; None in forms that write them otherwise.

    as_json: the name as a JSON string.
    """
    mark = "" if form.leads else form.start
    if isinstance(form.syntax, NamedJson):
        return f"{mark}{_named_head(form.syntax, name)}"
    if form.is_json:
        before, behind = _json_head(form, as_json)
        return f"{mark}{_block(form).opening}{before}{'0' if form.number_key else ''}{behind}"
    return None


def _json_head(form: ToolFormat, as_json: str) -> tuple[str, str]:
    """Up to the arguments: what goes before the call's number, and what behind it."""
    rest = f'"{form.name_key}": {as_json}, "{form.arguments_key}":'
    return (f'{{"{form.number_key}": "', f'", {rest}') if form.number_key else ("{", rest)


def _named_head(syntax: NamedJson, name: str) -> str:
    written = f"functions.{name}:0" if syntax.parts is kimi_name else name
    return f"{syntax.before}{written}{syntax.between}"


def json_arguments(writer: GrammarWriter, arguments: Arguments) -> str:
    """The arguments of a call, or one of them, as JSON."""
    if arguments.input is None:
        return writer.schema(arguments.schema, arguments.path, lenient=arguments.lenient)
    text = writer.string(_input(writer, arguments.input))
    if arguments.get("type") == "string":
        return writer.rule(text)
    return writer.rule(f'{literal(f"""{{"{INPUT_MEMBER}":""")} " "? {text} "}}"')


def _input(writer: GrammarWriter, grammar: InputGrammar) -> str:
    """The text itself."""
    write = writer.grammar if grammar.syntax == "lark" else writer.regex
    return write(grammar.definition, grammar.path)


class CallGrammar:
    """Writes calls of one form into a grammar."""

    def __init__(self, writer: GrammarWriter, form: ToolFormat) -> None:
        self._writer = writer
        self._form = form
        self._block = _block(form)

    @property
    def mark(self) -> str:
        """The mark that calls begin with; "" where there is none."""
        return self._writer.spelled(self._form.start)

    @property
    def apart(self) -> str | None:
        """What stands between calls that have marks of their own; None where all stand between the same marks."""
        return self._block.apart if self._block.is_single else None

    @property
    def end(self) -> str:
        """The mark that closes calls; "" where there is none."""
        return self._writer.spelled(self._form.end)

    def some(self, calls: Sequence[str], *, only_one: bool) -> str:
        """One of these calls or several, as they stand between the marks."""
        block = self._block
        one = self._writer.rule(" | ".join(calls))
        if not (only_one or block.is_single):
            one = f"{one} ({self._writer.spelled(block.between)} {one})*"
        return self._joined(self._writer.spelled(block.opening), one, self._writer.spelled(block.closing))

    def call(self, name: str, arguments: Arguments) -> str:
        """One call, without the marks around all of them."""
        form, syntax = self._form, self._form.syntax
        if form.is_json:
            before, behind = _json_head(form, json.dumps(name, ensure_ascii=False))
            number = _NUMBER if form.number_key else ""
            return self._joined(literal(before), number, literal(f"{behind} "), self.json_arguments(arguments), '"}"')
        if isinstance(syntax, NamedJson):
            return self._named_json(syntax, name, arguments)
        if isinstance(syntax, Tagged):
            return self._tagged(syntax, name, arguments)
        if isinstance(syntax, Pythonic):
            pairs = self._members(arguments, "=", ", ", self.json_arguments)
            return self._joined(literal(f"{name}("), pairs, '")"')
        assert isinstance(syntax, GemmaCalls)
        quote = syntax.quote
        pairs = self._members(arguments, ":", ",", lambda one: self._quoted(one, quote))
        return self._joined(literal(f"call:{name}{{"), pairs, '"}"')

    def json_arguments(self, arguments: Arguments) -> str:
        return json_arguments(self._writer, arguments)

    def _named_json(self, syntax: NamedJson, name: str, arguments: Arguments) -> str:
        before, _, behind = _named_head(syntax, name).rpartition(syntax.between)
        number = ""
        if syntax.parts is kimi_name:
            before, number = before.removesuffix("0"), _NUMBER
        closing = self._writer.spelled(syntax.between + behind)
        rest = self._writer.spelled(syntax.behind)
        return self._joined(self._writer.spelled(before), number, closing, self.json_arguments(arguments), rest)

    def _tagged(self, syntax: Tagged, name: str, arguments: Arguments) -> str:
        if _is_open(arguments):
            key = self._joined(
                self._writer.spelled(f"\n{syntax.key_start}"),
                _KEY,
                self._writer.spelled(self._behind_key(syntax, True)),
            )
            body = f"({key} {self._text(syntax)})*"
        else:
            body = " ".join(self._tag(syntax, *parameter) for parameter in _parameters(arguments))
        opening = syntax.name_start + name + syntax.name_end
        return self._joined(self._writer.spelled(opening), body, self._writer.spelled("\n" + syntax.call_end))

    def _behind_key(self, syntax: Tagged, is_text: bool) -> str:
        flag = f'" string="{"true" if is_text else "false"}' if syntax.key_start.startswith(_FLAGGED) else ""
        start = f"\n{syntax.value_start}" if syntax.value_start else ""
        return f"{flag}{syntax.key_end}{start}" + ("\n" if syntax.breaks else "")

    def _value_end(self, syntax: Tagged) -> str:
        return ("\n" if syntax.breaks else "") + syntax.value_end

    def _tag(self, syntax: Tagged, key: str, one: Arguments, is_required: bool) -> str:
        choices, is_text = _texts(one), _is_text(one)
        end = self._writer.spelled(self._value_end(syntax))
        if one.input is not None:
            value = f"{_input(self._writer, one.input)} {end}"
        elif choices:
            value = f"({' | '.join(map(literal, choices))}) {end}"
        elif is_text:
            self._check_text(one)
            value = self._text(syntax, one.get("minLength"), one.get("maxLength"))
        elif _may_be_text(one):
            value = self._text(syntax)
        else:
            value = f"{self.json_arguments(one)} {end}"
        rule = self._joined(
            self._writer.spelled(f"\n{syntax.key_start}{key}{self._behind_key(syntax, is_text)}"), value
        )
        return rule if is_required else f"{rule}?"

    def _text(self, syntax: Tagged, low: int | None = None, high: int | None = None) -> str:
        """A text without quotes and the end of its tag."""
        end = self._value_end(syntax)
        if self._writer.is_special(syntax.value_end):
            return f"{self._writer.text()} {self._writer.spelled(end)}"
        return self._writer.text_until([end], low=low, high=high)

    def _check_text(self, one: Arguments) -> None:
        """Raises UnsupportedParameter for what a text without quotes can't be held to."""
        keyword = next((name for name in _KEYWORDS_OF_TEXT if one.get(name) is not None), None)
        if keyword is not None and not one.lenient:
            path = f"{one.path}.{keyword}"
            raise UnsupportedParameter.at(path, "this model writes texts in tool calls without quotes")

    def _quoted(self, one: Arguments, quote: str) -> str:
        """A value of Gemma's: a text between its own quotes, anything else as JSON."""
        mark, choices = self._writer.spelled(quote), _texts(one)
        if one.input is not None:
            return f"{mark} {_input(self._writer, one.input)} {mark}"
        if choices:
            return f"{mark} ({' | '.join(map(literal, choices))}) {mark}"
        if not (_is_text(one) or _may_be_text(one)):
            return self.json_arguments(one)
        text = f"{mark} {self._writer.text_through(quote, low=one.get('minLength'), high=one.get('maxLength'))}"
        if not _is_text(one):
            return f"({text} | {self.json_arguments(one)})"
        self._check_text(one)
        return text

    def _members(self, arguments: Arguments, equals: str, between: str, value: Callable[[Arguments], str]) -> str:
        """KEY `equals` VALUE with `between` in between, in the schema's order; optional ones may be left out."""
        comma = literal(between)
        if _is_open(arguments):
            free = self._joined(_KEY, literal(equals), value(Arguments({}, arguments.path, arguments.lenient)))
            return f"({free} ({comma} {free})*)?"
        first = later = ""  # what may come from a parameter on, where none was written before, and where one was
        for key, one, is_required in reversed(list(_parameters(arguments))):
            written = self._joined(literal(key + equals), value(one), later)
            first = self._or_skipped(written, first, is_required)
            later = self._or_skipped(f"{comma} {written}", later, is_required)
        return first

    def _or_skipped(self, written: str, behind: str, is_required: bool) -> str:
        if is_required:
            return self._writer.rule(written)
        return self._writer.rule(f"{written} | {behind}") if behind else f"({written})?"

    def _joined(self, *expressions: str) -> str:
        return self._writer.rule(" ".join(filter(None, expressions)))


def _is_open(arguments: Arguments) -> bool:
    """Whether the schema names no parameters and forbids none."""
    return not arguments.get("properties") and arguments.get("additionalProperties") is not False


def _parameters(arguments: Arguments) -> Iterator[tuple[str, Arguments, bool]]:
    """Each parameter of a tool, with what its schema needs of the whole, and whether it is required."""
    shared = {name: found for name in ("$defs", "definitions") if (found := arguments.get(name)) is not None}
    properties, required = arguments.get("properties"), arguments.get("required")
    for key, one in properties.items() if isinstance(properties, dict) else ():
        whole = {**shared, **one} if isinstance(one, dict) else one
        is_required = isinstance(required, list) and key in required
        path = f"{arguments.path}.properties.{key}"
        yield key, Arguments(whole, path, arguments.lenient, arguments.input), is_required


def _texts(one: Arguments) -> list[str]:
    """The texts that may stand there, where they are listed; empty ones have no expression."""
    listed = one.get("enum") if one.get("enum") is not None else [one.get("const")]
    is_listed = isinstance(listed, list) and all(isinstance(text, str) and text for text in listed)
    return listed if is_listed else []


def _is_text(one: Arguments) -> bool:
    return one.get("type") == "string" or bool(_texts(one))


def _may_be_text(one: Arguments) -> bool:
    kinds = one.get("type")
    return kinds is None or (isinstance(kinds, list) and "string" in kinds)
