"""Ollama's tools, both ways. Schemas pass as raw JSON, never decoded and rebuilt (law 9). There is no tool choice."""

from typing import Any

from adapters.call_objects import allowed_tools, function_object
from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import ProviderData
from adapters.canonical.request import NONE, REQUIRED, Request, Tool
from adapters.canonical.tool_kinds import FUNCTION
from adapters.field_types import NAME, RAW_OBJECT, TEXT
from adapters.json_fields import JsonObject
from adapters.ollama.vocabulary import CHAT
from adapters.raw_json import put_back

__all__ = ["take_tools", "tool_objects"]


def take_tools(body: JsonObject) -> tuple[Tool, ...] | None:
    """An empty list is no list."""
    found: list[Tool] = []
    for row in body.take_objects("tools") or ():
        row.take("type", TEXT)
        function = row.take_object(FUNCTION) or JsonObject({}, row.at(FUNCTION))
        name = function.require("name", NAME)
        description = function.take("description", TEXT)
        parameters = function.take("parameters", RAW_OBJECT)
        rest = {f"{FUNCTION}.{key}": raw for key, raw in function.rest().items()} | row.rest()
        known = {key: raw for key, raw in rest.items() if raw != b"null"}
        extras = ProviderData(CHAT, known) if known else None
        found.append(
            Tool(kind=FUNCTION, name=name, description=description or None, parameters=parameters, extras=extras)
        )
    return tuple(found) or None


def tool_objects(request: Request) -> list[dict[str, Any]] | None:
    """The declarations for the upstream, None for no tools or where none may be called.

    Raises UnsupportedParameter for a call that is demanded: nothing makes an Ollama model call a tool.
    """
    choice = request.tool_choice
    if choice is not None and choice.mode == REQUIRED:
        raise UnsupportedParameter.at("tool_choice", "Ollama can't make a model call a tool")
    if not request.tools or (choice is not None and choice.mode == NONE):
        return None
    return [_tool_object(tool) for tool in allowed_tools(request)] or None


def _tool_object(tool: Tool) -> dict[str, Any]:
    function = function_object(tool)
    found: dict[str, Any] = {"type": FUNCTION, FUNCTION: function}
    if tool.extras is not None and tool.extras.origin == CHAT:
        put_back(found, tool.extras.fields)
    return found
