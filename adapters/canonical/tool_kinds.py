"""What a tool is: the kinds of tools, of calls to them, and of what a choice names. `Tool` says what each holds."""

from typing import Final

__all__ = ["CUSTOM", "FUNCTION", "HOSTED", "MCP"]

FUNCTION: Final = "function"
CUSTOM: Final = "custom"
HOSTED: Final = "hosted"
MCP: Final = "mcp"
