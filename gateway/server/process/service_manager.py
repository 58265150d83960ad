"""Tells systemd (and whoever speaks its protocol) what state the process is in: sd_notify(3), read 2026-11."""

import os
import socket
import time

__all__ = ["tell_ready", "tell_reloading", "tell_stopping"]


def tell_ready() -> None:
    """It serves. Does nothing where nobody listens ($NOTIFY_SOCKET)."""
    _tell("READY=1")


def tell_reloading() -> None:
    _tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


def tell_stopping() -> None:
    _tell("STOPPING=1")


def _tell(state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET")
    if not address or address[0] not in "/@":
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        try:
            out.connect(f"\0{address[1:]}" if address[0] == "@" else address)
            out.sendall(state.encode())
        except OSError:
            return  # the manager is gone: there is nobody to tell
