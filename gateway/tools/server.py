"""What a source of tools is, whoever runs them: an MCP server, or functions of an installed package."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from adapters.openai.responses.tool_items import ToolFault

__all__ = ["MAX_OUTPUT_CHARS", "ServerTool", "ToolOutcome", "ToolServer", "ToolServerError"]

MAX_OUTPUT_CHARS = 1_000_000
"""Of one call; a longer answer counts as a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """One tool as its server lists it. `schema` is the JSON Schema of its arguments, `annotations` what the server says
    about it besides; both raw JSON. `read_only` is the server's own claim that it changes nothing."""

    name: str
    description: str | None = None
    schema: bytes = b'{"type":"object"}'
    annotations: bytes | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call came to. `text` is what the model sees, also where the call failed."""

    text: str
    fault: ToolFault | None = None


class ToolServerError(Exception):
    """It could not be asked, or gave nothing that can be read. `fault` is what is said of that."""

    def __init__(self, fault: ToolFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class ToolServer(Protocol):
    """May be used by several responses at once. Each question has a time limit of its own."""

    async def tools(self) -> Sequence[ServerTool]:
        """What it offers. Raises ToolServerError."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        """Raises ToolServerError."""
        ...

    async def aclose(self) -> None:
        """Ends its processes and connections; calls that run fail."""
        ...
