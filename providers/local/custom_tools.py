"""Custom tools, whose input is any text, as the functions that a local model knows: of one parameter, that text.

The grammar that a client may give for the input is kept beside, and held to where the call is written.
"""

from typing import Any, Final, NamedTuple

import msgspec
import orjson
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import Request, Tool
from adapters.text.custom_input import INPUT_MEMBER

__all__ = ["CUSTOM", "InputGrammar", "as_function", "custom_names", "input_grammar"]

CUSTOM: Final = "custom"
_PLACES: Final = {"openai.chat": "custom.format.grammar"}
"""Where a grammar stands in the client's declaration; else it is `format`."""
_LARK, _REGEX = "lark", "regex"


class InputGrammar(NamedTuple):
    """`syntax` is lark or regex. `path`: where the definition stands in the client's body."""

    syntax: str
    definition: str
    path: str


class _Inner(msgspec.Struct):
    syntax: str | None = None
    definition: str | None = None


class _Format(msgspec.Struct):
    type: str = "text"
    grammar: _Inner | None = None


def custom_names(request: Request) -> frozenset[str]:
    return frozenset(tool.name for tool in request.tools or () if tool.kind == CUSTOM)


def as_function(tool: Tool) -> Tool:
    """The tool as templates and grammars take it; one that is no custom tool as it is. Its grammar stays with it."""
    if tool.kind != CUSTOM:
        return tool
    said: dict[str, Any] = {"type": "string"}
    grammar = _read(tool)
    if grammar is not None and grammar.definition is not None:
        said["description"] = f"Text that follows this grammar ({grammar.syntax}):\n{grammar.definition}"
    schema = {
        "type": "object",
        "properties": {INPUT_MEMBER: said},
        "required": [INPUT_MEMBER],
        "additionalProperties": False,
    }
    return replace(tool, kind="function", parameters=orjson.dumps(schema), strict=True)


def input_grammar(request: Request, number: int, tool: Tool) -> InputGrammar | None:
    """What the input of a custom tool has to follow; None where it is free. Raises InvalidRequest, naming the place."""
    grammar = _read(tool)
    if grammar is None:
        return None
    path = f"tools[{number}].{_PLACES.get(request.dialect, 'format')}"
    if grammar.syntax not in (_LARK, _REGEX):
        raise InvalidRequest(f"{path}.syntax: expected {_LARK} or {_REGEX}", param=f"{path}.syntax")
    if not grammar.definition:
        raise InvalidRequest(f"{path}.definition: this field is required", param=f"{path}.definition")
    return InputGrammar(grammar.syntax, grammar.definition, f"{path}.definition")


def _read(tool: Tool) -> _Inner | None:
    if tool.grammar is None:
        return None
    try:
        found = msgspec.json.decode(tool.grammar, type=_Format)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"tools: the format of '{tool.name}': {error}", param="tools") from error
    return (found.grammar or _Inner()) if found.type == "grammar" else None
