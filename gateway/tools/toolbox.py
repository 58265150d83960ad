"""The tools of one response that the gateway runs, and the request with them in place of what the client declared."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson
from msgspec.structs import replace

from adapters.canonical.errors import UpstreamUnreachable
from adapters.canonical.request import Request
from adapters.openai.responses.tool_items import CODE_INTERPRETER, FILE_SEARCH, MCP_CALL
from gateway.tools.bound_tools import BoundTool, bind_tools
from gateway.tools.server import ToolServer
from gateway.tools.sources import Listing, Source, find_sources, list_tools
from gateway.tools.tool_choice import bound_choice
from gateway.tools.tool_servers import ToolServers

__all__ = ["Toolbox", "open_toolbox"]

_INCLUDE = "include"
_SHOWN = {"file_search_call.results": FILE_SEARCH, "code_interpreter_call.outputs": CODE_INTERPRETER}


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


async def open_toolbox(request: Request, servers: ToolServers, *, natively: bool) -> Toolbox:
    """`natively`: every target of the model runs such tools itself; then only what run.yaml has is run here.

    Raises InvalidRequest, naming the path, and UpstreamUnreachable for a hosted tool whose server can't be asked.
    """
    sources = find_sources(request, servers, natively)
    if not sources:
        return Toolbox(request)
    temporary = [source.server for source in sources.values() if source.is_temporary]
    try:
        lists = await asyncio.gather(*[list_tools(source) for source in sources.values()])
        return _filled(request, dict(zip(sources, lists, strict=True)), sources, temporary)
    except BaseException:
        for server in temporary:
            servers.retire(server)
        raise


def _filled(
    request: Request, lists: Mapping[int, Listing], sources: Mapping[int, Source], temporary: Sequence[ToolServer]
) -> Toolbox:
    for number, source in sources.items():
        if source.kind != MCP_CALL and not lists[number].tools:
            why = lists[number].error or "its server has no such tool"
            raise UpstreamUnreachable(f"{source.path}: {source.kind}: {why}", param=source.path)
    bound, functions = bind_tools(request, sources, lists, _shown(request))
    placed = [
        (request.tool_path(number), each)
        for number, tool in enumerate(request.tools or ())
        for each in functions.get(number, (tool,))
    ]
    tools = [tool for _, tool in placed]
    choice, permitted = bound_choice(request.tool_choice, bound)
    has_hosted = any(tool.raw is not None for tool in tools)
    extras = {name: raw for name, raw in request.extras.items() if name != _INCLUDE or has_hosted}
    changed = replace(
        request,
        tools=tuple(tools) or None,
        tool_paths=tuple([path for path, _ in placed]) or None,
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
