"""OpenAI's tools and tool choice, both ways. Schemas and grammars pass as raw JSON, never decoded (law 9).

Chat puts what a tool is into an object of its kind (`{"type": "function", "function": {"name", ...}}`); the Responses
API is flat (`{"type": "function", "name", ...}`) and knows namespaces. `dialect` says which form is meant.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import orjson
from msgspec import Meta, Raw, Struct, ValidationError
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import ProviderData
from adapters.canonical.request import AUTO, NONE, REQUIRED, Namespace, Tool, ToolChoice
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION, HOSTED, MCP
from adapters.field_types import BOOL, NAME, RAW_OBJECT, TEXT
from adapters.json_fields import JsonObject, decode_at, parse_object_at
from adapters.openai.cache_fields import cache_hint
from adapters.openai.vocabulary import CHAT, RESPONSES
from adapters.raw_json import OBJECT, RAW_ITEMS, fragments, raw_fields

__all__ = [
    "bare_name",
    "declared_tools",
    "full_name",
    "parse_tool_choice",
    "parse_tools",
    "tool_choice_object",
    "tool_object",
    "tool_objects",
]

_NAMESPACE = "namespace"
_ALLOWED = "allowed_tools"
_GRAMMAR = "grammar"
_CHOICE = Decoder(str | dict[str, Raw])
_MODES = (NONE, AUTO, REQUIRED)
_ANY = "any"
"""Mistral's word for required."""
_encode = orjson.dumps


class _Function(Struct, forbid_unknown_fields=True):
    """What nearly all tools are; its decoder does in one step what the general way does field by field."""

    name: Annotated[str, Meta(min_length=1)]
    description: str | None = None
    parameters: Raw = Raw()
    strict: bool | None = None


class _FlatTool(_Function, kw_only=True):
    type: Literal["function"]


class _NestedTool(Struct, forbid_unknown_fields=True):
    type: Literal["function"]
    function: _Function


_decode_flat = Decoder(_FlatTool).decode
_decode_nested = Decoder(_NestedTool).decode


def full_name(namespace: str, name: str) -> str:
    """The name of a namespace's tool where there are no namespaces."""
    return f"{namespace}__{name}"


def bare_name(namespace: str, name: str) -> str:
    """The name that the tool has in its namespace."""
    return name.removeprefix(full_name(namespace, ""))


def parse_tools(body: JsonObject, dialect: str = CHAT) -> tuple[Tool, ...] | None:
    """Chat refuses an empty list; in the Responses API it is no list."""
    raws = body.take("tools", RAW_ITEMS)
    if raws is None or (not raws and dialect == RESPONSES):
        return None
    if not raws:
        raise InvalidRequest.at("tools", "the list must not be empty; leave the field out")
    return tuple(declared_tools(raws, "tools", dialect))


def declared_tools(raws: Sequence[Raw], where: str, dialect: str) -> list[Tool]:
    """The tools of a list; `where` is its path."""
    found: list[Tool] = []
    for i, raw in enumerate(raws):
        plain = _plain_tool(raw, dialect)
        if plain is not None:
            found.append(plain)
            continue
        path = f"{where}[{i}]"
        tool = parse_object_at(bytes(raw), path)
        kind = tool.require("type", TEXT)
        if kind == _NAMESPACE and dialect == RESPONSES:
            found += _parse_namespace(tool)
        else:
            found.append(_parse_tool(tool, kind, bytes(raw), dialect))
    return found


def _plain_tool(raw: Raw, dialect: str) -> Tool | None:
    """None: it has to be read the general way."""
    try:
        found: _Function = _decode_flat(raw) if dialect == RESPONSES else _decode_nested(raw).function
    except ValidationError:
        return None
    parameters = bytes(found.parameters)
    if not parameters.startswith(b"{"):
        return None
    return Tool(
        kind=FUNCTION, name=found.name, description=found.description, parameters=parameters, strict=found.strict
    )


def _parse_tool(tool: JsonObject, kind: str, raw: bytes, dialect: str, namespace: Namespace | None = None) -> Tool:
    if kind not in (FUNCTION, CUSTOM):
        return Tool(kind=MCP if kind == MCP and dialect == RESPONSES else HOSTED, name=kind, raw=raw)
    body = tool if dialect == RESPONSES else tool.require_object(kind)
    name = body.require("name", NAME)
    description = body.take("description", TEXT)
    parameters = strict = grammar = None
    if kind == CUSTOM:
        grammar = body.take("format", RAW_OBJECT)
        if grammar is not None and dialect == RESPONSES:
            grammar = _nested_grammar(grammar, body.at("format"))
    else:
        parameters = body.take("parameters", RAW_OBJECT)
        strict = body.take("strict", BOOL)
    return Tool(
        kind=kind,
        name=name if namespace is None else full_name(namespace.name, name),
        description=description,
        parameters=parameters,
        strict=strict,
        grammar=grammar,
        namespace=namespace,
        cache=cache_hint(tool) or cache_hint(body),
        extras=_rest(tool, body, dialect),
    )


def _parse_namespace(tool: JsonObject) -> list[Tool]:
    namespace = Namespace(name=tool.require("name", NAME), description=tool.take("description", TEXT))
    found: list[Tool] = []
    for member in tool.require_objects("tools"):
        kind = member.require("type", TEXT)
        if kind not in (FUNCTION, CUSTOM):
            raise InvalidRequest.at(member.at("type"), f"expected {FUNCTION} or {CUSTOM}, got {kind}")
        found.append(_parse_tool(member, kind, b"", RESPONSES, namespace))
    tool.refuse_rest()
    return found


def _rest(tool: JsonObject, body: JsonObject, dialect: str) -> ProviderData | None:
    """Unmapped fields of the tool and, with a prefix, of the object inside it. Null is the same as absent."""
    if body is tool:
        fields = tool.said()
    else:
        fields = tool.rest()
        kind = body.path.rpartition(".")[2]
        fields.update({f"{kind}.{name}": raw for name, raw in body.rest().items()})
    return ProviderData(dialect, fields) if fields else None


def _nested_grammar(raw: bytes, path: str) -> bytes:
    """Chat's form of a custom tool's format."""
    fields = decode_at(raw, OBJECT, path)
    kind = fields.pop("type", Raw(b"null"))
    if bytes(kind) != b'"grammar"':
        return raw
    inner = fragments(fields)
    return _encode({"type": _GRAMMAR, _GRAMMAR: inner})


def _flat_grammar(raw: bytes) -> Any:
    """The Responses API's form of the same."""
    fields = raw_fields(raw)
    inner = fields.pop(_GRAMMAR, None)
    if inner is None:
        return orjson.Fragment(raw)
    fields.update(raw_fields(inner))
    return fragments(fields)


def tool_objects(tools: tuple[Tool, ...], client: str, dialect: str) -> list[Any]:
    """The list of tools in the form of `dialect`; neighbours of one namespace are one object again."""
    found: list[Any] = []
    open_namespace: Namespace | None = None
    for tool in tools:
        one = tool_object(tool, client, dialect)
        if tool.namespace is None or dialect != RESPONSES:
            found.append(one)
        elif tool.namespace == open_namespace:
            found[-1]["tools"].append(one)
        else:
            group = {"type": _NAMESPACE, "name": tool.namespace.name, "description": tool.namespace.description or ""}
            found.append({**group, "tools": [one]})
        open_namespace = tool.namespace
    return found


def tool_object(tool: Tool, client: str, dialect: str = CHAT) -> Any:
    """`client` is the client's dialect: a hosted tool goes back as it came, and to its own dialect alone."""
    if tool.raw is not None:
        if client != dialect:
            raise UnsupportedParameter.at("tools", f"{dialect} has no tool {tool.name}")
        return orjson.Fragment(tool.raw)
    flat = dialect == RESPONSES
    name, description = tool.name, tool.description if flat else tool.whole_description
    if flat and tool.namespace is not None:
        name = bare_name(tool.namespace.name, name)
    inner: dict[str, Any] = {"type": tool.kind, "name": name} if flat else {"name": name}
    if description is not None:
        inner["description"] = description
    if tool.parameters is not None:
        inner["parameters"] = orjson.Fragment(tool.parameters)
    if tool.strict is not None:
        inner["strict"] = tool.strict
    elif flat and tool.kind == FUNCTION and client != RESPONSES:
        inner["strict"] = False  # chat's default; the Responses API's is to try
    if tool.grammar is not None:
        inner["format"] = _flat_grammar(tool.grammar) if flat else orjson.Fragment(tool.grammar)
    outer: dict[str, Any] = inner if flat else {"type": tool.kind, tool.kind: inner}
    if tool.extras is not None and tool.extras.origin == dialect:
        for field_name, raw in tool.extras.fields.items():
            prefix, _, field = field_name.partition(".")
            if field and prefix == tool.kind and not flat:
                inner[field] = orjson.Fragment(raw)
            else:
                outer[field_name] = orjson.Fragment(raw)
    return outer


def parse_tool_choice(body: JsonObject, tools: tuple[Tool, ...] | None, dialect: str = CHAT) -> ToolChoice | None:
    """Refuses a choice that its tools cannot meet (PROTOCOL: required or named without tools, an unknown name)."""
    raw = body.peek_raw("tool_choice")
    value = body.take("tool_choice", _CHOICE)
    if value is None or raw is None:
        return None
    if isinstance(value, str):
        if value == _ANY and dialect == CHAT:
            value = REQUIRED
        if value not in _MODES:
            raise InvalidRequest.at("tool_choice", f"expected one of {', '.join(_MODES)}, or an object")
        choice = ToolChoice(mode=value)
    else:
        choice = _parse_choice_object(JsonObject(value, "tool_choice"), raw, dialect)
    if not tools and choice.mode == REQUIRED:
        raise InvalidRequest.at("tool_choice", "a call cannot be required without tools")
    return choice if choice.name is None else _declared(choice, tools or ())


def _declared(choice: ToolChoice, tools: tuple[Tool, ...]) -> ToolChoice:
    """The choice with the name as the tools have it."""
    if choice.kind == HOSTED:
        if any(tool.raw is not None for tool in tools):
            return choice
    else:
        for tool in tools:
            if tool.kind == choice.kind:
                bare = full_name(tool.namespace.name, choice.name or "") if tool.namespace else choice.name
                if tool.name in (choice.name, bare):
                    return ToolChoice(mode=choice.mode, name=tool.name, kind=choice.kind)
    raise InvalidRequest.at("tool_choice", f"there is no tool named {choice.name}")


def _parse_choice_object(value: JsonObject, raw: bytes, dialect: str) -> ToolChoice:
    kind = value.require("type", TEXT)
    flat = dialect == RESPONSES
    if kind in (FUNCTION, CUSTOM):
        named = value if flat else value.require_object(kind)
        choice = ToolChoice(mode=REQUIRED, name=named.require("name", NAME), kind=kind)
        named.refuse_rest()
        value.refuse_rest()
        return choice
    if kind == _ALLOWED:
        allowed = value if flat else value.require_object(kind)
        mode = allowed.require("mode", TEXT)
        if mode not in (AUTO, REQUIRED):
            raise InvalidRequest.at(allowed.at("mode"), "expected auto or required")
        references = allowed.require("tools", RAW_ITEMS)
        allowed.refuse_rest()
        value.refuse_rest()
        for i, reference in enumerate(references):
            decode_at(reference, OBJECT, allowed.at(f"tools[{i}]"))
        return ToolChoice(mode=mode, allowed=tuple([bytes(reference) for reference in references]))
    if flat:
        return ToolChoice(mode=REQUIRED, name=kind, kind=HOSTED, raw=raw)
    raise InvalidRequest.at("tool_choice.type", f"expected {FUNCTION}, {CUSTOM} or allowed_tools, got {kind}")


def tool_choice_object(choice: ToolChoice, dialect: str = CHAT) -> Any:
    flat = dialect == RESPONSES
    if choice.allowed is not None:
        tools = [_reference(reference, flat=flat) for reference in choice.allowed]
        inner = {"mode": choice.mode, "tools": tools}
        return {"type": _ALLOWED, **inner} if flat else {"type": _ALLOWED, _ALLOWED: inner}
    if choice.raw is not None:
        if not flat:
            raise UnsupportedParameter.at("tool_choice", f"{dialect} has no tool {choice.name}")
        return orjson.Fragment(choice.raw)
    if choice.name is not None:
        return (
            {"type": choice.kind, "name": choice.name}
            if flat
            else {"type": choice.kind, choice.kind: {"name": choice.name}}
        )
    return choice.mode


def _reference(raw: bytes, *, flat: bool) -> Any:
    """A reference to a tool in the other form, where it came in that one."""
    fields = raw_fields(raw)
    kind = bytes(fields.get("type", Raw(b"null"))).decode().strip('"')
    if kind in (FUNCTION, CUSTOM):
        inner = fields.get(kind)
        if flat and inner is not None:
            return {"type": kind, **fragments(raw_fields(inner))}
        if not flat and inner is None:
            del fields["type"]
            return {"type": kind, kind: fragments(fields)}
    return orjson.Fragment(raw)
