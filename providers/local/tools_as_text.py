"""Tools in the prompt of a model whose chat template has no place for them: how they are declared, and how earlier
calls and results are spelled. One row a form; what a model then writes is read by the format of the same name.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from adapters.text.tool_calls import TOOL_FORMATS, ToolFormat

__all__ = ["HERMES", "ToolsAsText", "tools_as_text"]

_HERMES: Final = """You can call these functions. Each line between the tags is one, with its parameters as JSON Schema:
<tools>
{tools}
</tools>
To call a function, write its name and arguments as one JSON object between tags, one pair of tags for each call:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>
The result then follows between <tool_response> tags."""
_CODE: Final = """You can call these functions. Each line is one, with its parameters as JSON Schema:
{tools}
To call functions, write each call on a line of its own, with its arguments by name, in a block of tool_code:
```tool_code
name(parameter="value")
```
The result then follows in a block of tool_output."""


class ToolsAsText(NamedTuple):
    """`call`: a call's function, with its name and arguments, as text. `result`: what stands around a result."""

    instructions: str
    call: Callable[[Mapping[str, Any]], str]
    result: tuple[str, str]

    def declared(self, tools: Sequence[Mapping[str, Any]]) -> str:
        return self.instructions.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))


def _hermes_call(function: Mapping[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps(function, ensure_ascii=False)}\n</tool_call>"


def _code_call(function: Mapping[str, Any]) -> str:
    """Arguments that are no object stand as the model wrote them."""
    arguments = function["arguments"]
    if isinstance(arguments, Mapping):
        arguments = ", ".join(f"{key}={_literal(value)}" for key, value in arguments.items())
    return f"```tool_code\n{function['name']}({arguments})\n```"


def _literal(value: Any) -> str:
    """A JSON value as Python writes it, texts in the quotes of JSON."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case dict():
            return "{" + ", ".join(f"{_literal(key)}: {_literal(item)}" for key, item in value.items()) + "}"
        case _:
            return repr(value)


HERMES: Final = ToolsAsText(_HERMES, _hermes_call, ("<tool_response>\n", "\n</tool_response>"))
_TOOL_CODE: Final = ToolsAsText(_CODE, _code_call, ("```tool_output\n", "\n```"))


def tools_as_text(form: ToolFormat | None) -> ToolsAsText:
    """For a model whose calls are read in this form."""
    return _TOOL_CODE if form == TOOL_FORMATS["tool_code"] else HERMES
