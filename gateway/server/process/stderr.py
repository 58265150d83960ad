"""What the process says on stderr. Whoever reads it may be slow, or gone: no request waits or fails for that."""

import os
import select
import sys
from typing import TextIO

__all__ = ["Stderr", "say"]

_AT_ONCE = 4096
"""A pipe that takes anything takes so many bytes (PIPE_BUF, POSIX 1003.1)."""


class Stderr:
    """Satisfies `gateway.server.log.Output`."""

    def write(self, data: bytes, /) -> int:
        """As many bytes as it takes now; all of them where nobody takes any more."""
        taken = 0
        stderr: TextIO | None = sys.stderr
        if stderr is None:  # it was closed before the start
            return len(data)
        try:
            out = stderr.fileno()
            while taken < len(data) and _takes(out):
                taken += os.write(out, data[taken : taken + _AT_ONCE])
        except (OSError, ValueError):
            return len(data)
        return taken


def say(line: str) -> None:
    """A line for whoever runs the gateway, beside its log."""
    Stderr().write(f"gateway: {line}\n".encode())


def _takes(out: int) -> bool:
    return sys.platform == "win32" or bool(select.select((), (out,), (), 0)[1])
