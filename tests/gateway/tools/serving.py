"""The small MCP server over HTTP, as a process of its own, and how run.yaml names it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["COMMAND", "PLAIN", "ROOT", "served"]

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "tests.gateway.tools.mcp_tools", "stdio"]
PLAIN = [sys.executable, "-m", "tests.gateway.tools.plain_server"]
"""The one that starts in no time."""


@contextmanager
def served(port: int = 0) -> Iterator[str]:
    """Its address, without a path."""
    process = subprocess.Popen([*COMMAND[:-1], "http", str(port)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
