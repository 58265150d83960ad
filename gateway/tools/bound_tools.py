"""Tools of servers as functions that a model can call: under names that every upstream takes, without the arguments
that the client's declaration gives already."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.request import Request, Tool
from adapters.canonical.tool_kinds import FUNCTION
from adapters.openai.tools import full_name
from adapters.tool_names import NameRule
from gateway.tools.server import ServerTool, ToolServer
from gateway.tools.sources import Listing, Source

__all__ = ["BoundTool", "bind_tools"]

_NAME = NameRule(first="a-zA-Z_", allowed="a-zA-Z0-9_-", max_length=64)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTool:
    """`name` is what the model calls it. `kind` is MCP_CALL, or the hosted tool in whose place it stands; `fixed` are
    arguments that the client's declaration gives; `shows`: the client wants to see what came of it."""

    name: str
    label: str
    server: ToolServer
    tool: ServerTool
    kind: str
    needs_approval: bool
    fixed: Mapping[str, Any]
    shows: bool


def bind_tools(
    request: Request, sources: Mapping[int, Source], lists: Mapping[int, Listing], shown: Collection[str]
) -> tuple[Mapping[str, BoundTool], Mapping[int, Sequence[Tool]]]:
    """The bound tools by name, and the functions that stand in the place of each declaration. `shown` are kinds of
    which the client wants to see what came of a call.

    Raises UnsupportedParameter for what a declaration says that none of its tools takes.
    """
    names = _names(request, lists)
    bound: dict[str, BoundTool] = {}
    functions: dict[int, list[Tool]] = {number: [] for number in sources}
    for number, source in sources.items():
        fixed = _fixed(source, lists[number].tools)
        for found in lists[number].tools:
            name = names[number, found.name]
            own = {key: value for key, value in fixed.items() if key in _properties(found.schema)}
            bound[name] = BoundTool(
                name=name,
                label=source.label,
                server=source.server,
                tool=found,
                kind=source.kind,
                needs_approval=source.approval.needs(found.name, found.read_only),
                fixed=own,
                shows=source.kind in shown,
            )
            functions[number].append(
                Tool(
                    kind=FUNCTION,
                    name=name,
                    description="\n\n".join(filter(None, (source.description, found.description))) or None,
                    parameters=_without(found.schema, own),
                )
            )
    return bound, functions


def _names(request: Request, lists: Mapping[int, Listing]) -> Mapping[tuple[int, str], str]:
    """What the model calls each tool: its own name, in letters that every upstream takes, or that behind its server's
    where another tool has it as well."""
    taken = {tool.name for tool in request.tools or () if tool.raw is None}
    own = [tool.name for listing in lists.values() for tool in listing.tools]
    names: dict[tuple[int, str], str] = {}
    for number, listing in lists.items():
        for tool in listing.tools:
            name = _NAME.sent(tool.name)
            if name in taken or own.count(tool.name) > 1:
                name = _NAME.sent(full_name(listing.label, tool.name))
            while name in taken:
                name += "_"
            taken.add(name)
            names[number, tool.name] = name
    return names


def _fixed(source: Source, tools: Sequence[ServerTool]) -> Mapping[str, Any]:
    """Arguments that the declaration gives: its fields, where a tool takes them. Raises UnsupportedParameter."""
    if not source.fields:
        return {}
    known = {name for tool in tools for name in _properties(tool.schema)}
    for name in source.fields:
        if name not in known:
            raise UnsupportedParameter.at(f"{source.path}.{name}", f"what does {source.kind} here knows no {name}")
    return {name: orjson.loads(raw) for name, raw in source.fields.items()}


def _properties(schema: bytes) -> Mapping[str, Any]:
    found = orjson.loads(schema)
    properties = found.get("properties") if isinstance(found, dict) else None
    return properties if isinstance(properties, dict) else {}


def _without(schema: bytes, names: Mapping[str, Any]) -> bytes:
    """The schema without arguments that are given already; as it came where there are none."""
    if not names:
        return schema
    found = orjson.loads(schema)
    found["properties"] = {name: value for name, value in found["properties"].items() if name not in names}
    if isinstance(found.get("required"), list):
        found["required"] = [name for name in found["required"] if name not in names]
    return orjson.dumps(found)
