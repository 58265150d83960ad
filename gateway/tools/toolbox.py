"""The tools of one response that the gateway runs: which they are, by what names the model has them, and the request
with them in place of what the client declared."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter, UpstreamUnreachable
from adapters.canonical.request import AUTO, REQUIRED, Request, Tool, ToolChoice
from adapters.openai.responses.tool_declarations import (
    Approval,
    McpDeclaration,
    ToolFilter,
    hosted_fields,
    hosted_kind,
    read_mcp_tool,
)
from adapters.openai.responses.tool_items import CODE_INTERPRETER, FILE_SEARCH, MCP_CALL
from adapters.openai.tools import HOSTED, MCP, full_name
from adapters.tool_names import NameRule
from gateway.tools.server import ServerTool, ToolServer, ToolServerError
from gateway.tools.tool_servers import ToolServers

__all__ = ["BoundTool", "Listing", "Toolbox", "later_choice", "open_toolbox"]

_MAX_SERVERS = 16
_NAME = NameRule(first="a-zA-Z_", allowed="a-zA-Z0-9_-", max_length=64)
_INCLUDE = "include"
_SHOWN = {"file_search_call.results": FILE_SEARCH, "code_interpreter_call.outputs": CODE_INTERPRETER}


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


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server that the client named has, or why that is not known."""

    label: str
    tools: Sequence[ServerTool]
    error: str | None = None


@dataclass(slots=True)
class Toolbox:
    """`request` is what the model is asked. `temporary` are servers of this response alone. `permitted` are the names
    that the client's choice of tools allows; None: all."""

    request: Request
    tools: Mapping[str, BoundTool] = field(default_factory=dict)
    listings: Sequence[Listing] = ()
    temporary: Sequence[ToolServer] = ()
    permitted: frozenset[str] | None = None

    @property
    def labels(self) -> frozenset[str]:
        """The servers of MCP calls; "" where there are hosted tools."""
        hosted = [""] if any(tool.kind != MCP_CALL for tool in self.tools.values()) else []
        return frozenset((*(listing.label for listing in self.listings), *hosted))

    def name_of(self, label: str, tool: str) -> str:
        """What the model calls a tool of this server; its own name where it is not there any more."""
        found = self.find(label, tool)
        return tool if found is None else found.name

    def find(self, label: str, tool: str) -> BoundTool | None:
        for bound in self.tools.values():
            if (bound.label == label and bound.tool.name == tool) or (not label and bound.kind == tool):
                return bound
        return None


@dataclass(frozen=True, slots=True)
class _Source:
    """One declaration that the gateway acts on. `only`: the one tool that is meant."""

    path: str
    label: str
    server: ToolServer
    kind: str
    takes: ToolFilter
    approval: Approval
    allowed: frozenset[str] | None = None
    only: str | None = None
    description: str | None = None
    fields: Mapping[str, bytes] = field(default_factory=dict)
    is_temporary: bool = False


async def open_toolbox(request: Request, servers: ToolServers, *, natively: bool) -> Toolbox:
    """`natively`: every target of the model runs such tools itself; then only what run.yaml has is run here.

    Raises InvalidRequest, naming the path, and UpstreamUnreachable for a hosted tool whose server can't be asked.
    """
    sources = _sources(request, servers, natively)
    if not sources:
        return Toolbox(request)
    temporary = [source.server for source in sources.values() if source.is_temporary]
    try:
        lists = await asyncio.gather(*[_listed(source) for source in sources.values()])
        return _filled(request, dict(zip(sources, lists, strict=True)), sources, temporary)
    except BaseException:
        for server in temporary:
            servers.retire(server)
        raise


def _sources(request: Request, servers: ToolServers, natively: bool) -> dict[int, _Source]:
    """By the number of their tool."""
    found: dict[int, _Source] = {}
    labels: set[str] = set()
    for number, tool in enumerate(request.tools or ()):
        path = f"tools[{number}]"
        if tool.raw is None:
            continue
        source = None
        if tool.kind == MCP:
            source = _mcp_source(read_mcp_tool(tool.raw, path), servers, natively)
        elif tool.kind == HOSTED and (kind := hosted_kind(tool.name)) is not None and not natively:
            source = _hosted_source(kind, tool.raw, path, servers)
        if source is None:
            continue
        if source.kind == MCP_CALL and source.label in labels:
            param = f"{path}.server_label"
            raise InvalidRequest(f"{param}: '{source.label}' stands here twice", param=param)
        labels.add(source.label if source.kind == MCP_CALL else "")
        found[number] = source
    if len(found) > _MAX_SERVERS:
        raise InvalidRequest(f"tools: expected at most {_MAX_SERVERS} servers", param="tools")
    return found


def _mcp_source(asked: McpDeclaration, servers: ToolServers, natively: bool) -> _Source | None:
    """None: it is left to the provider, or refused by who knows what the provider takes."""
    if asked.url is not None:
        if natively or not servers.takes_from_requests:
            return None
        asked.refuse_rest()
        server = servers.of_request(asked.label, asked.url, asked.headers)
        approval = asked.approval or Approval(True)
        return _Source(
            asked.path,
            asked.label,
            server,
            MCP_CALL,
            asked.allowed,
            approval,
            description=asked.description,
            is_temporary=True,
        )
    declared = servers.declared(asked.label)
    if declared is None or asked.elsewhere is not None:
        if natively or asked.elsewhere is not None:
            return None
        param = f"{asked.path}.server_label"
        raise InvalidRequest(f"{param}: run.yaml has no tools '{asked.label}', and there is no server_url", param=param)
    asked.refuse_rest()
    if asked.headers:
        param = f"{asked.path}.headers"
        raise UnsupportedParameter(f"{param}: run.yaml has the headers of '{asked.label}'", param=param)
    return _Source(
        asked.path,
        asked.label,
        declared.server,
        MCP_CALL,
        asked.allowed,
        asked.approval or Approval(declared.needs_approval),
        allowed=declared.allowed,
        description=asked.description,
    )


def _hosted_source(kind: str, raw: bytes, path: str, servers: ToolServers) -> _Source | None:
    use = servers.in_place_of(kind)
    if use is None:
        return None
    declared = use.declared
    return _Source(
        path,
        declared.label,
        declared.server,
        kind,
        ToolFilter(),
        Approval(False),
        allowed=declared.allowed,
        only=use.tool,
        fields=hosted_fields(raw, path),
    )


async def _listed(source: _Source) -> Listing:
    try:
        tools = await source.server.tools()
    except ToolServerError as error:
        return Listing(source.label, (), error.fault.message)
    taken = [
        tool
        for tool in tools
        if source.takes.takes(tool.name, tool.read_only)
        and (source.allowed is None or tool.name in source.allowed)
        and source.only in (None, tool.name)
    ]
    return Listing(source.label, taken)


def _filled(
    request: Request, lists: Mapping[int, Listing], sources: Mapping[int, _Source], temporary: Sequence[ToolServer]
) -> Toolbox:
    for number, source in sources.items():
        if source.kind != MCP_CALL and not lists[number].tools:
            why = lists[number].error or "its server has no such tool"
            raise UpstreamUnreachable(f"{source.path}: {source.kind}: {why}", param=source.path)
    shown = _shown(request)
    names = _names(request, lists)
    bound: dict[str, BoundTool] = {}
    tools: list[Tool] = []
    for number, tool in enumerate(request.tools or ()):
        if number not in sources:
            tools.append(tool)
            continue
        source = sources[number]
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
            tools.append(
                Tool(
                    kind="function",
                    name=name,
                    description="\n\n".join(filter(None, (source.description, found.description))) or None,
                    parameters=_without(found.schema, own),
                )
            )
    choice, permitted = _choice(request.tool_choice, bound)
    has_hosted = any(tool.raw is not None for tool in tools)
    extras = {name: raw for name, raw in request.extras.items() if name != _INCLUDE or has_hosted}
    changed = replace(
        request,
        tools=tuple(tools) or None,
        tool_choice=choice if tools else None,
        parallel_tool_calls=request.parallel_tool_calls if tools else None,
        max_tool_calls=request.max_tool_calls if has_hosted else None,
        extras=extras,
    )
    listings = [lists[number] for number, source in sources.items() if source.kind == MCP_CALL]
    return Toolbox(changed, bound, listings, temporary, permitted)


def _shown(request: Request) -> frozenset[str]:
    """Hosted tools of which the client wants to see what they found."""
    asked = orjson.loads(request.extras.get(_INCLUDE, b"[]"))
    return frozenset(_SHOWN[value] for value in asked if value in _SHOWN)


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


def _fixed(source: _Source, tools: Sequence[ServerTool]) -> Mapping[str, Any]:
    """Arguments that the declaration gives: its fields, where a tool takes them. Raises UnsupportedParameter."""
    if not source.fields:
        return {}
    known = {name for tool in tools for name in _properties(tool.schema)}
    for name in source.fields:
        if name not in known:
            param = f"{source.path}.{name}"
            raise UnsupportedParameter(f"{param}: what does {source.kind} here knows no {name}", param=param)
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


def _choice(
    choice: ToolChoice | None, bound: Mapping[str, BoundTool]
) -> tuple[ToolChoice | None, frozenset[str] | None]:
    """The choice with the names that the model has, and the names that it allows (None: all)."""
    if choice is None:
        return None, None
    if choice.allowed is not None:
        references = [reference for raw in choice.allowed for reference in _references(raw, bound)]
        allowed = [str(orjson.loads(reference).get("name", "")) for reference in references]
        return replace(choice, allowed=tuple(references)), frozenset(allowed)
    if choice.raw is None or not bound:
        return choice, None
    names = _meant(orjson.loads(choice.raw), bound)
    if names is None:
        return choice, None
    if not names:
        raise InvalidRequest(f"tool_choice: no {choice.name} tool is there", param="tool_choice")
    if len(names) == 1:
        return ToolChoice(mode=REQUIRED, name=names[0]), frozenset(names)
    return ToolChoice(mode=REQUIRED, allowed=tuple(map(_reference, names))), frozenset(names)


def later_choice(choice: ToolChoice | None) -> ToolChoice | None:
    """The choice once a tool was called: what had to be called has been."""
    if choice is None or choice.mode != REQUIRED:
        return choice
    return None if choice.allowed is None else ToolChoice(mode=AUTO, allowed=choice.allowed)


def _references(raw: bytes, bound: Mapping[str, BoundTool]) -> Sequence[bytes]:
    names = _meant(orjson.loads(raw), bound)
    return (raw,) if names is None else [_reference(name) for name in names]


def _reference(name: str) -> bytes:
    return orjson.dumps({"type": "function", "name": name})


def _meant(reference: Mapping[str, Any], bound: Mapping[str, BoundTool]) -> Sequence[str] | None:
    """The names that a reference to tools stands for; None: it is not about tools of the gateway."""
    kind = reference.get("type")
    if kind == MCP:
        label, name = reference.get("server_label"), reference.get("name")
        if not any(tool.label == label and tool.kind == MCP_CALL for tool in bound.values()):
            return None
        return [each for each, tool in bound.items() if tool.label == label and name in (None, tool.tool.name)]
    hosted = hosted_kind(str(kind))
    names = [each for each, tool in bound.items() if hosted is not None and tool.kind == hosted]
    return names or None
