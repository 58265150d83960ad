"""Anthropic's tools and tool choice, both ways. Schemas pass as raw JSON, never decoded and rebuilt (law 9)."""

from typing import Annotated, Any, Literal

import orjson
from msgspec import DecodeError, Meta, Raw, Struct, ValidationError
from msgspec.json import Decoder

from adapters.anthropic.content import take_cache
from adapters.anthropic.plain_turns import PlainCache
from adapters.anthropic.vocabulary import MESSAGES
from adapters.call_objects import NO_PARAMETERS, allowed_tools
from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import CacheHint, ProviderData
from adapters.canonical.request import AUTO, NONE, REQUIRED, Request, Tool, ToolChoice
from adapters.canonical.tool_kinds import FUNCTION, HOSTED
from adapters.field_types import BOOL, NAME, RAW_OBJECT, TEXT
from adapters.json_fields import JsonObject, parse_object_at
from adapters.raw_json import RAW_ITEMS, fragments, raw_fields

__all__ = ["cache_object", "take_tool_choice", "take_tools", "tool_choice_object", "tool_objects"]

_CUSTOM = (None, "custom")
_MODES = {"auto": AUTO, "any": REQUIRED, "tool": REQUIRED, "none": NONE}
_WORDS = {AUTO: "auto", REQUIRED: "any", NONE: "none"}


class _PlainTool(Struct, forbid_unknown_fields=True):
    """What nearly all tools are; its decoder does in one step what the general way does field by field."""

    name: Annotated[str, Meta(min_length=1)]
    input_schema: Raw
    description: str | None = None
    strict: bool | None = None
    cache_control: PlainCache | None = None
    type: Literal["custom"] | None = None


_decode_plain = Decoder(_PlainTool).decode


def take_tools(body: JsonObject) -> tuple[Tool, ...] | None:
    """An empty list is no list."""
    raws = body.take("tools", RAW_ITEMS)
    return (
        tuple([_plain_tool(raw) or _parse_tool(bytes(raw), f"tools[{i}]") for i, raw in enumerate(raws or ())]) or None
    )


def _plain_tool(raw: Raw) -> Tool | None:
    """None: it has to be read the general way."""
    try:
        found = _decode_plain(raw)
    except ValidationError:
        return None
    schema = bytes(found.input_schema)
    if not schema.startswith(b"{"):
        return None
    return Tool(
        kind=FUNCTION,
        name=found.name,
        description=found.description,
        parameters=schema,
        strict=found.strict,
        cache=None if found.cache_control is None else found.cache_control.hint,
    )


def _parse_tool(raw: bytes, path: str) -> Tool:
    """A tool with a type of its own runs at Anthropic, or is one that its models know: it stays whole."""
    tool = parse_object_at(raw, path)
    kind = tool.take("type", TEXT)
    if kind not in _CUSTOM:
        return Tool(kind=HOSTED, name=kind or "", raw=raw, cache=take_cache(tool))
    return Tool(
        kind=FUNCTION,
        name=tool.require("name", NAME),
        description=tool.take("description", TEXT),
        parameters=tool.require("input_schema", RAW_OBJECT),
        strict=tool.take("strict", BOOL),
        cache=take_cache(tool),
        extras=ProviderData(MESSAGES, rest) if (rest := tool.said()) else None,  # the last, after all are taken
    )


def take_tool_choice(body: JsonObject, tools: tuple[Tool, ...] | None) -> tuple[ToolChoice | None, bool | None]:
    """The choice, and whether calls may be parallel (None: not said). Refuses a choice that the tools cannot meet."""
    value = body.take_object("tool_choice")
    if value is None:
        return None, None
    kind = value.require("type", TEXT)
    if kind not in _MODES:
        raise InvalidRequest(f"tool_choice.type: expected one of {', '.join(_MODES)}, got {kind}", param="tool_choice")
    name = value.require("name", NAME) if kind == "tool" else None
    disabled = value.take("disable_parallel_tool_use", BOOL) if kind != "none" else None
    value.refuse_rest()
    if not tools and _MODES[kind] == REQUIRED:
        raise InvalidRequest.at("tool_choice", "a call cannot be required without tools")
    if name is not None and not any(tool.name == name or tool.kind == HOSTED for tool in tools or ()):
        raise InvalidRequest(f"tool_choice: there is no tool named {name}", param="tool_choice.name")
    return ToolChoice(mode=_MODES[kind], name=name), False if disabled else None


def tool_objects(request: Request) -> list[Any] | None:
    """The declarations for the upstream, None for no tools. With `allowed_tools` only those that are allowed."""
    if request.tools is None:
        return None
    return [_tool_object(tool, request.dialect) for tool in allowed_tools(request)]


def _tool_object(tool: Tool, dialect: str) -> Any:
    if tool.raw is not None:
        if dialect != MESSAGES:
            raise UnsupportedParameter.at("tools", f"Anthropic has no tool {tool.name} in this form")
        return orjson.Fragment(tool.raw)
    found: dict[str, Any] = {"name": tool.name}
    if (description := tool.whole_description) is not None:
        found["description"] = description
    found["input_schema"] = orjson.Fragment(_object_schema(tool.parameters))
    if tool.strict is not None:
        found["strict"] = tool.strict
    if tool.cache is not None:
        found["cache_control"] = cache_object(tool.cache)
    if tool.extras is not None and tool.extras.origin == MESSAGES:
        found.update(fragments(tool.extras.fields))
    return found


def _object_schema(schema: bytes | None) -> bytes:
    """The schema as it came. One that does not say so is told to be an object's, which the API demands."""
    if schema is None:
        return NO_PARAMETERS
    try:
        if "type" in raw_fields(schema):
            return schema
    except DecodeError as error:
        raise InvalidRequest.at("tools", "a tool's schema is not a JSON object") from error
    inside = schema.strip()[1:]
    return b'{"type":"object"%b%b' % (b"" if inside.strip() == b"}" else b",", inside)


def cache_object(hint: CacheHint) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "ephemeral"}
    if hint.ttl is not None:
        found["ttl"] = hint.ttl
    if hint.provider_data is not None and hint.provider_data.origin == MESSAGES:
        found.update(fragments(hint.provider_data.fields))
    return found


def tool_choice_object(request: Request) -> dict[str, Any] | None:
    """`parallel_tool_calls: false` is a field of the choice here; without tools it asks for nothing."""
    choice = request.tool_choice
    disabled = request.parallel_tool_calls is False and bool(request.tools)
    if choice is None:
        return {"type": "auto", "disable_parallel_tool_use": True} if disabled else None
    found: dict[str, Any] = {"type": _WORDS[choice.mode]}
    if choice.name is not None:
        found = {"type": "tool", "name": choice.name}
    if disabled and choice.mode != NONE:
        found["disable_parallel_tool_use"] = True
    return found
