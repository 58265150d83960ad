"""Functions of installed packages as tools: a package registers a factory under `llm_gateway.tools`, run.yaml names it.

def weather(**options) -> Sequence[FunctionTool]: ...
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.openai.responses.tool_items import EXECUTION, PROTOCOL, ToolFault
from gateway.config.sections.tools import Functions
from gateway.extensions import build_extension
from gateway.tools.server import MAX_OUTPUT_CHARS, ServerTool, ToolOutcome, ToolServerError

__all__ = ["ENTRY_POINT_GROUP", "FunctionServer", "FunctionTool", "build_functions"]

ENTRY_POINT_GROUP = "llm_gateway.tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool:
    """`schema` is the JSON Schema of the arguments, raw. `call` gets them as JSON values and gives the text for the
    model; an exception is told to the model by its text, so it must hold no secrets."""

    name: str
    call: Callable[[Mapping[str, Any]], Awaitable[object]]
    description: str | None = None
    schema: bytes = b'{"type":"object"}'
    read_only: bool = False


class FunctionServer:
    """Satisfies `ToolServer`."""

    def __init__(self, functions: Sequence[FunctionTool], timeout_s: float) -> None:
        """Raises ValueError for two of one name."""
        self._functions = {function.name: function for function in functions}
        if len(self._functions) < len(functions):
            raise ValueError("two functions have the same name")
        self._timeout_s = timeout_s
        self._tools = [
            ServerTool(
                name=function.name,
                description=function.description,
                schema=function.schema,
                read_only=function.read_only,
            )
            for function in functions
        ]

    async def tools(self) -> Sequence[ServerTool]:
        return self._tools

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        function = self._functions.get(name)
        if function is None:
            raise ToolServerError(ToolFault(PROTOCOL, f"there is no function '{name[:100]}'"))
        try:
            async with asyncio.timeout(self._timeout_s):
                text = await function.call(arguments)
        except TimeoutError:
            raise ToolServerError(ToolFault(PROTOCOL, f"it gave no answer within {self._timeout_s:g} s")) from None
        except Exception as error:  # whatever it is, it is the model's to deal with
            text = f"{type(error).__name__}: {error}"
            return ToolOutcome(text[:MAX_OUTPUT_CHARS], ToolFault(EXECUTION, text[:MAX_OUTPUT_CHARS]))
        if not isinstance(text, str) or len(text) > MAX_OUTPUT_CHARS:
            raise ToolServerError(ToolFault(EXECUTION, f"expected a text of {MAX_OUTPUT_CHARS} characters at most"))
        return ToolOutcome(text)

    async def aclose(self) -> None:
        """There is nothing to end."""


def build_functions(name: str, section: Functions) -> FunctionServer:
    """Raises ValueError for an entry point that no package brings, or whose options can't work."""
    path = f"tools.functions.{name}"
    made = build_extension(ENTRY_POINT_GROUP, section.use, section.options, what="the tools", path=path)
    return FunctionServer(made, section.timeout_s)
