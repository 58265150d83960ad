"""OpenAI's tools and tool choice, both ways. Schemas and grammars pass as raw JSON, never decoded (law 9)."""

from typing import Any

import orjson
from msgspec import Raw
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import ProviderData
from adapters.canonical.request import AUTO, NONE, REQUIRED, Tool, ToolChoice
from adapters.json_fields import JsonObject, decode_at
from adapters.openai.vocabulary import BOOL, CHAT, CUSTOM, FUNCTION, NAME, RAW_OBJECT, TEXT

__all__ = ["parse_tool_choice", "parse_tools", "tool_choice_object", "tool_object"]

_OBJECT = Decoder(dict[str, Raw])
_RAW_LIST = Decoder(list[Raw])
_CHOICE = Decoder(str | dict[str, Raw])
_MODES = (NONE, AUTO, REQUIRED)


def parse_tools(body: JsonObject) -> tuple[Tool, ...] | None:
    raws = body.take("tools", _RAW_LIST)
    if raws is None:
        return None
    if not raws:
        raise InvalidRequest("tools: the list must not be empty; leave the field out", param="tools")
    return tuple([_parse_tool(bytes(raw), f"tools[{i}]") for i, raw in enumerate(raws)])


def _parse_tool(raw: bytes, path: str) -> Tool:
    tool = JsonObject(decode_at(raw, _OBJECT, path), path)
    kind = tool.require("type", TEXT)
    if kind not in (FUNCTION, CUSTOM):
        return Tool(kind="hosted", name=kind, raw=raw)
    body = tool.take_object(kind)
    if body is None:
        raise InvalidRequest(f"{path}.{kind}: this field is required", param=f"{path}.{kind}")
    name = body.require("name", NAME)
    description = body.take("description", TEXT)
    if kind == CUSTOM:
        return Tool(
            kind=kind,
            name=name,
            description=description,
            grammar=body.take("format", RAW_OBJECT),
            extras=_rest(tool, body),
        )
    parameters = body.take("parameters", RAW_OBJECT)
    strict = body.take("strict", BOOL)
    return Tool(
        kind=kind, name=name, description=description, parameters=parameters, strict=strict, extras=_rest(tool, body)
    )


def _rest(tool: JsonObject, body: JsonObject) -> ProviderData | None:
    """Unmapped fields of the tool and, with a prefix, of the object inside it."""
    fields = tool.rest()
    kind = body.path.rpartition(".")[2]
    fields.update({f"{kind}.{name}": raw for name, raw in body.rest().items()})
    return ProviderData(CHAT, fields) if fields else None


def tool_object(tool: Tool, dialect: str) -> Any:
    """`dialect` is the client's: a hosted tool goes back as it came, and to its own dialect alone."""
    if tool.raw is not None:
        if dialect != CHAT:
            raise UnsupportedParameter(f"tools: chat completions have no tool {tool.name}", param="tools")
        return orjson.Fragment(tool.raw)
    inner: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        inner["description"] = tool.description
    if tool.parameters is not None:
        inner["parameters"] = orjson.Fragment(tool.parameters)
    if tool.strict is not None:
        inner["strict"] = tool.strict
    if tool.grammar is not None:
        inner["format"] = orjson.Fragment(tool.grammar)
    outer: dict[str, Any] = {"type": tool.kind, tool.kind: inner}
    if tool.extras is not None and tool.extras.origin == CHAT:
        for name, raw in tool.extras.fields.items():
            prefix, _, field = name.partition(".")
            if field and prefix == tool.kind:
                inner[field] = orjson.Fragment(raw)
            else:
                outer[name] = orjson.Fragment(raw)
    return outer


def parse_tool_choice(body: JsonObject, tools: tuple[Tool, ...] | None) -> ToolChoice | None:
    """Refuses a choice that its tools cannot meet (PROTOCOL: required or named without tools, an unknown name)."""
    value = body.take("tool_choice", _CHOICE)
    if value is None:
        return None
    if isinstance(value, str):
        if value not in _MODES:
            raise InvalidRequest(f"tool_choice: expected one of {', '.join(_MODES)}, or an object", param="tool_choice")
        choice = ToolChoice(mode=value)
    else:
        choice = _parse_choice_object(JsonObject(value, "tool_choice"))
    if not tools and choice.mode == REQUIRED:
        raise InvalidRequest("tool_choice: a call cannot be required without tools", param="tool_choice")
    named = (choice.kind, choice.name)
    if choice.name is not None and not any((tool.kind, tool.name) == named for tool in tools or ()):
        raise InvalidRequest(f"tool_choice: there is no tool named {choice.name}", param="tool_choice")
    return choice


def _parse_choice_object(value: JsonObject) -> ToolChoice:
    kind = value.require("type", TEXT)
    if kind in (FUNCTION, CUSTOM):
        named = value.take_object(kind)
        if named is None:
            raise InvalidRequest(f"tool_choice.{kind}: this field is required", param=f"tool_choice.{kind}")
        choice = ToolChoice(mode=REQUIRED, name=named.require("name", NAME), kind=kind)
        named.refuse_rest()
        value.refuse_rest()
        return choice
    if kind == "allowed_tools":
        allowed = value.take_object("allowed_tools")
        if allowed is None:
            raise InvalidRequest("tool_choice.allowed_tools: this field is required", param="tool_choice.allowed_tools")
        mode = allowed.require("mode", TEXT)
        if mode not in (AUTO, REQUIRED):
            raise InvalidRequest(f"{allowed.at('mode')}: expected auto or required", param=allowed.at("mode"))
        references = allowed.require("tools", _RAW_LIST)
        allowed.refuse_rest()
        value.refuse_rest()
        return ToolChoice(mode=mode, allowed=tuple([bytes(reference) for reference in references]))
    raise InvalidRequest(
        f"tool_choice.type: expected {FUNCTION}, {CUSTOM} or allowed_tools, got {kind}", param="tool_choice.type"
    )


def tool_choice_object(choice: ToolChoice) -> Any:
    if choice.allowed is not None:
        tools = [orjson.Fragment(reference) for reference in choice.allowed]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": tools}}
    if choice.name is not None:
        return {"type": choice.kind, choice.kind: {"name": choice.name}}
    return choice.mode
