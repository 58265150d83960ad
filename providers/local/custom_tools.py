"""What the input of a custom tool has to follow at a local model, which holds it to that where the call is written."""

from typing import Final, NamedTuple

from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import Request, Tool
from adapters.canonical.tool_kinds import CUSTOM
from providers import custom_tools
from providers.custom_tools import custom_names, grammar_of, grammar_place

__all__ = ["CUSTOM", "InputGrammar", "as_function", "custom_names", "input_grammar"]

_LARK: Final = "lark"
_REGEX: Final = "regex"


class InputGrammar(NamedTuple):
    """`syntax` is lark or regex. `path`: where the definition stands in the client's body."""

    syntax: str
    definition: str
    path: str


def as_function(tool: Tool) -> Tool:
    """The tool as templates and grammars take it; one that is no custom tool as it is. Its grammar stays with it."""
    return tool if tool.kind != CUSTOM else replace(custom_tools.as_function(tool), strict=True)


def input_grammar(request: Request, number: int, tool: Tool) -> InputGrammar | None:
    """What the input of a custom tool has to follow; None where it is free. Raises InvalidRequest, naming the place."""
    grammar = grammar_of(tool)
    if grammar is None:
        return None
    path = f"tools[{number}].{grammar_place(request.dialect)}"
    if grammar.syntax not in (_LARK, _REGEX):
        raise InvalidRequest.at(f"{path}.syntax", f"expected {_LARK} or {_REGEX}")
    if not grammar.definition:
        raise InvalidRequest.at(f"{path}.definition", "this field is required")
    return InputGrammar(grammar.syntax, grammar.definition, f"{path}.definition")
