"""The sockets that the gateway listens on, and how many it may have."""

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from gateway.config.sections.server import Server

__all__ = ["CannotListen", "address_of", "allow_many_sockets", "bind_all", "most_connections", "rebind"]


_ENOUGH = 10_240


class CannotListen(Exception):
    """The message says which address, and why."""


def allow_many_sockets() -> None:
    """Raises this process's limit of open files as far as the system lets it: each request that is served has two, and
    many systems begin with 1,024."""
    if sys.platform == "win32":
        return
    import resource

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(now, _ENOUGH) if most == resource.RLIM_INFINITY else most  # macOS says so, and refuses it
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def most_connections() -> int:
    """Half of the open files that this process may have: a request that is served has two. Where none is left, the
    event loop would close the listening socket for good (uvloop 0.23)."""
    if sys.platform == "win32":
        return _ENOUGH
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def bind_all(section: Server, sockets: ExitStack, *, shared: bool = False) -> list[socket.socket]:
    """The main socket, and that of the admin port where there is one; `sockets` closes them. Nothing listens yet.

    `shared`: this gateway's other processes bind the same ports, and the system spreads connections over them. Raises
    CannotListen.
    """
    bound: list[socket.socket] = []
    for port in (section.port, section.admin_port):
        if port is None:
            continue
        try:
            if shared:
                _bind(section.host, port, shared=False).close()  # another gateway would share its port in silence
            bound.append(sockets.enter_context(_bind(section.host, port, shared=shared)))
        except OSError as error:
            raise CannotListen(f"cannot listen on {section.host}:{port}: {error.strerror or str(error)}") from error
    return bound


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def rebind(like: Sequence[socket.socket], sockets: ExitStack) -> list[socket.socket]:
    """Sockets of one's own on the ports of these, which were bound as shared."""
    return [
        sockets.enter_context(_bound(each.family, each.type, each.proto, each.getsockname(), shared=True))
        for each in like
    ]


def _bind(host: str, port: int, *, shared: bool) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return _bound(family, kind, protocol, address, shared=shared)


def _bound(family: int, kind: int, protocol: int, address: object, *, shared: bool) -> socket.socket:
    bound = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)  # type: ignore[arg-type]  # as getaddrinfo and getsockname give it
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound
