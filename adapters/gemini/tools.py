"""Gemini's tools and tool choice, both ways. JSON Schemas pass as raw JSON, never decoded and rebuilt (law 9)."""

from typing import Any

import orjson

from adapters.call_objects import allowed_names
from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import ProviderData
from adapters.canonical.request import AUTO, NONE, REQUIRED, Request, Tool, ToolChoice
from adapters.canonical.tool_kinds import FUNCTION, HOSTED
from adapters.field_types import BOOL, NAME, RAW_OBJECT, TEXT, TEXTS
from adapters.gemini.schemas import json_schema_of
from adapters.gemini.vocabulary import GEMINI, MODE, TOOL_NAMES
from adapters.gemini.wire_objects import object_at, take_list, take_object, take_objects
from adapters.json_fields import JsonObject
from adapters.raw_json import fragments

__all__ = ["take_tool_choice", "take_tools", "tool_config_object", "tool_objects"]

_DECLARATIONS = "functionDeclarations"
_CONFIG = "toolConfig"
_CALLING = "toolConfig.functionCallingConfig"
_VALIDATED = "VALIDATED"
"""AUTO, with calls that keep to their schemas and to the names that are allowed."""
_MODES = {"AUTO": AUTO, "ANY": REQUIRED, "NONE": NONE, _VALIDATED: AUTO, "MODE_UNSPECIFIED": AUTO}
_WORDS = {AUTO: "AUTO", REQUIRED: "ANY", NONE: "NONE"}


def take_tools(body: JsonObject) -> tuple[Tool, ...] | None:
    """Functions, and what runs at Google as a tool of its own. An empty list is no list."""
    found: list[Tool] = []
    for raw, path in take_list(body, "tools") or ():
        tool = object_at(raw, path)
        for declaration in take_objects(tool, _DECLARATIONS) or ():
            found.append(_parse_declaration(declaration))
        for name, value in tool.said().items():
            found.append(Tool(kind=HOSTED, name=name, raw=b"{%b:%b}" % (orjson.dumps(name), value)))
    return tuple(found) or None


def _parse_declaration(fields: JsonObject) -> Tool:
    name = fields.require("name", NAME)
    description = fields.take("description", TEXT)
    schema = fields.take("parametersJsonSchema", RAW_OBJECT)
    older = fields.take("parameters", RAW_OBJECT)
    if schema is None and older is not None:
        schema = json_schema_of(older, fields.at("parameters"))
    rest = fields.said()
    return Tool(
        kind=FUNCTION,
        name=name,
        description=description,
        parameters=schema,
        extras=ProviderData(GEMINI, rest) if rest else None,
    )


def take_tool_choice(body: JsonObject, tools: tuple[Tool, ...] | None) -> tuple[ToolChoice | None, dict[str, bytes]]:
    """The choice, and what a choice can't say: the whole toolConfig, or its mode where that is AUTO with calls held to
    their schemas. Refuses what the tools cannot meet."""
    raw = body.peek_raw(_CONFIG)
    config = take_object(body, _CONFIG)
    if config is None or raw is None:
        return None, {}
    calling = take_object(config, "functionCallingConfig")
    mode = None if calling is None else calling.take("mode", TEXT)
    names = None if calling is None else calling.take("allowedFunctionNames", TEXTS)
    if calling is not None and calling.take("streamFunctionCallArguments", BOOL):
        path = f"{_CALLING}.streamFunctionCallArguments"
        raise UnsupportedParameter.at(path, "arguments come whole")
    if config.said() or (calling is not None and calling.said()):
        return None, {_CONFIG: raw}
    if mode is None:
        return None, {}
    if mode not in _MODES:
        raise InvalidRequest.at(MODE, f"expected one of {', '.join(_MODES)}, got {mode}")
    extras = {MODE: orjson.dumps(mode)} if mode == _VALIDATED else {}
    if not tools and _MODES[mode] == REQUIRED:
        raise InvalidRequest.at(_CALLING, "a call cannot be required without tools")
    declared = {tool.name for tool in tools or () if tool.kind == FUNCTION}
    for name in names or ():
        if name not in declared:
            path = f"{_CALLING}.allowedFunctionNames"
            raise InvalidRequest.at(path, f"there is no function named {name}")
    if not names:
        return ToolChoice(mode=_MODES[mode]), extras
    if len(names) == 1 and _MODES[mode] == REQUIRED:
        return ToolChoice(mode=REQUIRED, name=names[0]), {}
    allowed = [orjson.dumps({"type": "function", "function": {"name": name}}) for name in names]
    return ToolChoice(mode=_MODES[mode], allowed=tuple(allowed)), extras


def tool_objects(request: Request) -> list[Any] | None:
    """The declarations for the upstream, None for no tools: all functions together, then Google's own tools."""
    if not request.tools:
        return None
    functions: list[dict[str, Any]] = []
    hosted: list[Any] = []
    for tool in request.tools:
        if tool.raw is None:
            functions.append(_declaration(tool))
        elif request.dialect == GEMINI:
            hosted.append(orjson.Fragment(tool.raw))
        else:
            raise UnsupportedParameter.at("tools", f"Gemini has no tool {tool.name} in this form")
    return ([{_DECLARATIONS: functions}] if functions else []) + hosted


def _declaration(tool: Tool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": TOOL_NAMES.sent(tool.name)}
    if (description := tool.whole_description) is not None:
        found["description"] = description
    if tool.parameters is not None:
        found["parametersJsonSchema"] = orjson.Fragment(tool.parameters)
    if tool.extras is not None and tool.extras.origin == GEMINI:
        found.update(fragments(tool.extras.fields))
    return found


def tool_config_object(request: Request) -> dict[str, Any] | None:
    """The choice. Calls of strict tools, and of those that are allowed alone, are VALIDATED where AUTO would leave them
    as they come."""
    choice, mode = request.tool_choice, AUTO
    names: list[str] | None = None
    if choice is not None:
        mode = choice.mode
        names = allowed_names(request) if choice.name is None else [choice.name]
    word = _WORDS[mode]
    if request.dialect == GEMINI and MODE in request.extras:
        word = _VALIDATED
    elif mode == AUTO and request.dialect != GEMINI:
        is_held = names is not None or any(tool.strict for tool in request.tools or ())
        word = _VALIDATED if is_held else word
    if choice is None and word != _VALIDATED:
        return None
    calling: dict[str, Any] = {"mode": word}
    if names is not None:
        calling["allowedFunctionNames"] = [TOOL_NAMES.sent(name) for name in names]
    return {"functionCallingConfig": calling}
