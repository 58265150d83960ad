"""Where the tools of one response come from: declarations of its request that the gateway acts on itself, and what
their servers list. The others are the provider's, or are refused by who knows what that takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.request import Request
from adapters.canonical.tool_kinds import HOSTED, MCP
from adapters.openai.responses.tool_declarations import (
    Approval,
    McpDeclaration,
    ToolFilter,
    hosted_fields,
    hosted_kind,
    read_mcp_tool,
)
from adapters.openai.responses.tool_items import MCP_CALL
from gateway.tools.server import ServerTool, ToolServer, ToolServerError
from gateway.tools.tool_servers import ToolServers

__all__ = ["Listing", "Source", "find_sources", "list_tools", "with_setting"]

_MAX_SERVERS = 16


@dataclass(frozen=True, slots=True)
class Source:
    """One declaration that the gateway acts on. `takes` is the client's choice of its tools, `allowed` that of
    run.yaml (None: all), `only` the one tool that is meant."""

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


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server that the client named has, or why that is not known."""

    label: str
    tools: Sequence[ServerTool]
    error: str | None = None


def find_sources(request: Request, servers: ToolServers, natively: bool) -> dict[int, Source]:
    """By the number of their tool. `natively`: every target of the model runs such tools itself; then only what
    run.yaml has is run here. Raises InvalidRequest and UnsupportedParameter, naming the path."""
    found: dict[int, Source] = {}
    labels: set[str] = set()
    for number, tool in enumerate(request.tools or ()):
        path = request.tool_path(number)
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
            raise InvalidRequest.at(f"{path}.server_label", f"'{source.label}' stands here twice")
        labels.add(source.label if source.kind == MCP_CALL else "")
        found[number] = source
    if len(found) > _MAX_SERVERS:
        raise InvalidRequest.at("tools", f"expected at most {_MAX_SERVERS} servers")
    return found


def _mcp_source(asked: McpDeclaration, servers: ToolServers, natively: bool) -> Source | None:
    """None: it is left to the provider, or refused by who knows what the provider takes."""
    if asked.url is not None:
        if natively or not servers.takes_from_requests:
            return None
        asked.refuse_rest()
        server = servers.of_request(asked.label, asked.url, asked.headers)
        approval = asked.approval or Approval(True)
        return Source(
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
        raise InvalidRequest.at(param, f"run.yaml has no tools '{asked.label}', and there is no server_url")
    asked.refuse_rest()
    if asked.headers:
        param = f"{asked.path}.headers"
        raise UnsupportedParameter.at(param, f"run.yaml has the headers of '{asked.label}'")
    return Source(
        asked.path,
        asked.label,
        declared.server,
        MCP_CALL,
        asked.allowed,
        asked.approval or Approval(declared.needs_approval),
        allowed=declared.allowed,
        description=asked.description,
    )


def with_setting(error: UnsupportedParameter, asked: Request, servers: ToolServers) -> UnsupportedParameter:
    """The error about `asked`, with the setting that lets the gateway itself call a server which a request names."""
    if servers.takes_from_requests:
        return error
    for number, tool in enumerate(asked.tools or ()):
        path = asked.tool_path(number)
        if error.param == path and tool.kind == MCP and tool.raw is not None and read_mcp_tool(tool.raw, path).url:
            why = "the gateway calls servers that a request names only with 'tools: {from_request: true}' in run.yaml"
            return UnsupportedParameter(f"{error.message}; {why}", param=path)
    return error


def _hosted_source(kind: str, raw: bytes, path: str, servers: ToolServers) -> Source | None:
    use = servers.in_place_of(kind)
    if use is None:
        return None
    declared = use.declared
    return Source(
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


async def list_tools(source: Source) -> Listing:
    """What of its server's tools the declaration takes."""
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
