"""A small real MCP server, for tests: run it as a module, over stdio or on a port of loopback.

python -m tests.gateway.tools.mcp_tools stdio
python -m tests.gateway.tools.mcp_tools http PORT        prints its port; streamable HTTP at /mcp, SSE at /sse
"""

import asyncio
import os
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.types import ImageContent, ToolAnnotations

__all__ = ["build_server"]


def build_server() -> MCPServer:
    server = MCPServer("small", log_level="CRITICAL")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @server.tool()
    def search(query: str, limit: int = 3) -> str:
        """Searches."""
        return f"{limit} pages about {query}"

    @server.tool()
    def run(code: str) -> str:
        """Runs code."""
        return f"ran {code}"

    @server.tool()
    def whoami() -> str:
        """Says which process this is."""
        return str(os.getpid())

    @server.tool()
    def secret() -> str:
        """Says what the environment holds."""
        return os.environ.get("TOOL_SECRET", "none")

    @server.tool()
    def fail() -> str:
        """Always fails."""
        raise ValueError("no luck today")

    @server.tool()
    async def hang() -> str:
        """Never answers."""
        await asyncio.Event().wait()
        return ""

    @server.tool()
    def die() -> str:
        """Ends its process."""
        os._exit(3)

    @server.tool()
    def picture() -> list[Any]:
        """Gives a picture."""
        return ["a cat", ImageContent(data="AAAA", mime_type="image/png")]

    @server.tool(name="odd.name/1")
    def odd() -> str:
        """Has a name that many APIs forbid."""
        return "odd"

    @server.tool()
    def long(chars: int) -> str:
        """Says a lot."""
        return "x" * chars

    return server


def serve(server: MCPServer, port: int) -> None:
    """Over HTTP; port 0 is a free one."""
    app = server.streamable_http_app()
    app.router.routes.extend(server.sse_app().routes)
    listener = socket.create_server(("127.0.0.1", port))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listener])


def main() -> None:
    if sys.argv[1] == "stdio":
        build_server().run("stdio")
    else:
        serve(build_server(), int(sys.argv[2]))


if __name__ == "__main__":
    main()
