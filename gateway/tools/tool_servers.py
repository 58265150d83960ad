"""All sources of tools: those of run.yaml, kept and shared by all responses, and those that one request names."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from adapters.openai.responses.tool_items import CODE_INTERPRETER, FILE_SEARCH, WEB_SEARCH
from gateway.config.sections.section import revealed
from gateway.config.sections.tools import Fetch, Tools
from gateway.config.sections.tools import McpServer as McpSection
from gateway.config.sections.tools import ToolServer as Section
from gateway.fetching.guarded import GuardedFetcher
from gateway.tools.functions import build_functions
from gateway.tools.mcp_server import McpServer
from gateway.tools.server import ToolServer
from gateway.tools.transports import HttpTransport, StdioTransport, Transport

__all__ = ["Declared", "ToolServers", "ToolUse"]

_DEFAULT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Declared:
    """A source of run.yaml, with what that says of its tools. `allowed` None: all."""

    label: str
    server: ToolServer
    needs_approval: bool
    allowed: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What stands in the place of a hosted tool. `tool` None: all that the source has."""

    declared: Declared
    tool: str | None


class ToolServers:
    """`clock` gives seconds of any origin, `lost` is told which server cannot be reached, and why.

    Raises ValueError for functions that no package brings, and ImportError where the extra for MCP is missing.
    """

    def __init__(
        self, section: Tools, fetch: Fetch, *, clock: Callable[[], float], lost: Callable[[str, str], None]
    ) -> None:
        self.takes_from_requests = section.from_request
        self._clock = clock
        self._lost = lost
        self._fetcher = GuardedFetcher(fetch)
        if (section.mcp or section.from_request) and find_spec("mcp") is None:
            raise ImportError("tools: MCP servers need an extra: pip install 'llm-protocol-gateway[mcp]'")
        self._declared: dict[str, Declared] = {}
        for label, server in section.mcp.items():
            self._declare(label, server, self._mcp(label, _transport(server), server.timeout_s))
        for label, functions in section.functions.items():
            self._declare(label, functions, build_functions(label, functions))
        uses = {
            WEB_SEARCH: section.web_search,
            FILE_SEARCH: section.file_search,
            CODE_INTERPRETER: section.code_interpreter,
        }
        self._uses = {kind: self._use(use) for kind, use in uses.items() if use is not None}
        self._retiring: set[asyncio.Task[None]] = set()

    def declared(self, label: str) -> Declared | None:
        return self._declared.get(label)

    def in_place_of(self, hosted: str) -> ToolUse | None:
        """What run.yaml names for a hosted tool."""
        return self._uses.get(hosted)

    def of_request(self, label: str, url: str, headers: Mapping[str, str]) -> ToolServer:
        """A server that a request names; `retire` it when the response has ended."""
        transport = HttpTransport(url, headers, sse=None, fetcher=self._fetcher)
        return McpServer(transport, _DEFAULT_TIMEOUT_S, clock=self._clock, lost=lambda why: None)

    def retire(self, server: ToolServer) -> None:
        """Closes it, without anyone waiting."""
        task = asyncio.get_running_loop().create_task(server.aclose())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def aclose(self) -> None:
        for declared in self._declared.values():
            self.retire(declared.server)
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await self._fetcher.aclose()

    def _declare(self, label: str, section: Section, server: ToolServer) -> None:
        allowed = None if section.allowed_tools is None else frozenset(section.allowed_tools)
        self._declared[label] = Declared(label, server, section.approval == "always", allowed)

    def _mcp(self, label: str, transport: Transport, timeout_s: float) -> McpServer:
        return McpServer(transport, timeout_s, clock=self._clock, lost=lambda why: self._lost(label, why))

    def _use(self, use: str) -> ToolUse:
        label, _, tool = use.partition(":")[2].partition("/")
        return ToolUse(self._declared[label], tool or None)


def _transport(section: McpSection) -> Transport:
    if section.command is not None:
        return StdioTransport(section.command, revealed(section.env))
    assert section.url is not None
    return HttpTransport(section.url, revealed(section.headers), sse=section.transport == "sse")
