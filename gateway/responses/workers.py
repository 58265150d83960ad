"""Processes that make responses, by name: a response whose maker is dead is nobody's."""

import os
import secrets
import socket
from functools import cache

__all__ = ["is_dead", "worker_name"]


@cache
def worker_name() -> str:
    """Names this process: its machine, its number there, and a word that no later process with both has."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}"


def is_dead(worker: str, own: str) -> bool:
    """Whether this worker is known to be dead. Of another machine's nothing is known; its lease tells."""
    if worker == own:
        return False
    host, _, rest = worker.partition("/")
    number = rest.partition("/")[0]
    if host != own.partition("/")[0] or not number.isdigit():
        return False
    return int(number) == os.getpid() or not _lives(int(number))


def _lives(number: int) -> bool:
    if os.name == "nt":
        return True  # asking with signal 0 would end it there
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True
