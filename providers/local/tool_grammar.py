"""Tool calls as the grammar of an answer, in the form that the model writes them.

Owns which tools may be called, what has to be enforced, and where calls may stand. How one is spelled is
`call_grammar`'s business.
"""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import NONE, REQUIRED, Request, Tool, ToolChoice
from adapters.text.tool_calls import ToolFormat
from providers.local.call_grammar import Arguments, CallGrammar
from providers.local.custom_tools import CUSTOM, as_function, input_grammar
from providers.local.grammar_text import GrammarWriter, literal, read_schema

__all__ = ["ToolGrammar", "bound_arguments", "callable_tools", "must_call", "needs_tool_grammar"]

_ANY_ARGUMENTS: Final = {"type": "object"}
_NO_ARGUMENTS: Final = {"type": "object", "additionalProperties": False}
_PLACES: Final = {"openai.chat": "function.parameters", "anthropic.messages": "input_schema"}
"""Where a tool's schema stands in the client's declaration; else it is `parameters`."""


def callable_tools(request: Request) -> list[tuple[int, Tool]]:
    """The tools that this answer may call, with their numbers in the request, as functions.

    Raises InvalidRequest where the tool choice allows a tool that is not there, or requires a call and allows none.
    """
    choice, tools = request.tool_choice, list(enumerate(map(as_function, request.tools or ())))
    if choice is None or (choice.name is None and choice.allowed is None):
        return [] if choice is not None and choice.mode == NONE else tools
    names = {choice.name} if choice.allowed is None else {_name_in(reference) for reference in choice.allowed}
    unknown = names - {tool.name for _, tool in tools}
    if unknown:
        raise InvalidRequest.at("tool_choice", f"there is no tool named {min(map(str, unknown))}")
    if not names and must_call(choice):
        raise InvalidRequest.at("tool_choice", "a call is required and no tool is allowed")
    return [(number, tool) for number, tool in tools if tool.name in names]


def _name_in(reference: bytes) -> str | None:
    fields = orjson.loads(reference)
    inner = fields.get(fields.get("type"), fields)
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else None


def must_call(choice: ToolChoice | None) -> bool:
    return choice is not None and choice.mode == REQUIRED


def needs_tool_grammar(request: Request) -> bool:
    """Whether calls have to be kept in bounds: a choice that allows some tools only or none but one call, or strict
    or custom tools. What else a model calls of its own will is read as it comes."""
    choice = request.tool_choice
    if not request.tools or (choice is not None and choice.mode == NONE):
        return False
    if must_call(choice) or (choice is not None and choice.allowed is not None):
        return True
    return request.parallel_tool_calls is False or any(tool.strict or tool.kind == CUSTOM for tool in request.tools)


def bound_arguments(request: Request, number: int, tool: Tool) -> Arguments:
    """Exact for strict tools. Else as far as it can be enforced, or, where calls are not asked for, any object.

    Raises InvalidRequest, naming the place.
    """
    path = f"tools[{number}].{_PLACES.get(request.dialect, 'parameters')}"
    is_forced = must_call(request.tool_choice)
    if not (tool.strict or is_forced):
        return Arguments(_ANY_ARGUMENTS, path, True)
    schema: Any = _NO_ARGUMENTS if tool.parameters is None else read_schema(tool.parameters, path)
    if isinstance(schema, dict):
        kind = schema.get("type", "object")
        if kind != "object" and not (isinstance(kind, list) and "object" in kind):
            raise InvalidRequest.at(f"{path}.type", "the arguments of a tool are an object")
        schema = {**schema, "type": "object"}
    return Arguments(schema, path, not tool.strict, input_grammar(request, number, tool))


class ToolGrammar:
    """Adds to a grammar the calls that a request allows."""

    def __init__(self, writer: GrammarWriter, form: ToolFormat, request: Request) -> None:
        self._writer = writer
        self._form = form
        self._spelling = CallGrammar(writer, form)
        self._request = request
        self._tools = callable_tools(request)
        choice = request.tool_choice
        self._is_single = request.parallel_tool_calls is False or (choice is not None and choice.name is not None)
        self._calls: str | None = None

    def arguments_alone(self) -> str:
        """The arguments of the tool that was chosen by name, as JSON."""
        ((number, tool),) = self._tools
        return self._spelling.json_arguments(bound_arguments(self._request, number, tool))

    def calls(self, *, marked: bool = False) -> str:
        """Calls: one, or any number of them where several are allowed. marked: with their mark even where a form can
        do without, so that they cannot be taken for another answer."""
        spelling, form = self._spelling, self._form
        one = self._writer.rule(f"{spelling.mark} {self._behind_mark()}")
        if form.leads and not (marked and form.start):
            return f"{one} | {self._some()}" if form.start else self._some()
        return one if self._is_single or spelling.apart is None else f"{one} ({literal(spelling.apart)} {one})*"

    def text_with_calls(self, unlike: Sequence[str]) -> str:
        """Any text, in which calls follow on each mark. unlike: expressions for what it does not begin with."""
        writer, form = self._writer, self._form
        beginnings = [*unlike, *map(literal, form.leads)]
        ways = [f"{self._text_to_mark(beginnings)} {self._behind_mark()}"] if form.start else []
        if form.leads:
            ways.append(self._some())
        first = f"({' | '.join(ways)})"
        rest = ""
        if not self._is_single:
            more = f"({self._text_to_mark(())} {self._behind_mark()})*" if form.start else ""
            rest = f"{more} {writer.text()}"
        return writer.rule(f"{first} {rest} | {writer.text_unlike(beginnings)}")

    def _text_to_mark(self, unlike: Sequence[str]) -> str:
        return self._writer.text_through(self._form.start, unlike=unlike)

    def _behind_mark(self) -> str:
        """What follows on a mark, with the mark that closes it."""
        return f"{self._some()} {self._spelling.end}"

    def _some(self) -> str:
        """The calls between the marks."""
        if self._calls is None:
            calls = [
                self._spelling.call(tool.name, bound_arguments(self._request, number, tool))
                for number, tool in self._tools
            ]
            self._calls = self._spelling.some(calls, only_one=self._is_single)
        return self._calls
