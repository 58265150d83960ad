"""The sockets that the gateway listens on, and how many it may have."""

import errno
import os
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from gateway.config.sections.server import Server

__all__ = ["Bound", "CannotListen", "address_of", "allow_many_sockets", "bind_all", "most_connections", "rebind"]


_ENOUGH = 10_240
_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""This machine has no such address, as `::1` where it speaks IPv4 alone."""


class CannotListen(Exception):
    """The message says which address, and why."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The main sockets, and those of the admin port; empty: there is none. `withdraw` takes the socket file away, so
    that nobody new comes by it."""

    main: Sequence[socket.socket]
    admin: Sequence[socket.socket]
    withdraw: Callable[[], None]


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


def bind_all(section: Server, sockets: ExitStack, *, shared: bool = False) -> Bound:
    """Everything that it listens on; `sockets` closes it. Nothing listens yet.

    `shared`: this gateway's other processes bind the same ports, and the system spreads connections over them. Raises
    CannotListen.
    """
    files = sockets.enter_context(ExitStack())
    if section.unix is not None:
        main = [sockets.enter_context(_bind_file(section.unix, int(section.unix_mode, 8), files))]
    else:
        main = _bind_port(section.host, section.port, sockets, shared=shared)
    admin = [] if section.admin_port is None else _bind_port(section.host, section.admin_port, sockets, shared=shared)
    return Bound(main, admin, files.close)


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def rebind(like: Bound, sockets: ExitStack) -> Bound:
    """Sockets of one's own on the ports of these, which were bound as shared. A socket file has one, which all share;
    it is not theirs to take away."""

    def again(each: socket.socket) -> socket.socket:
        if each.family == socket.AF_UNIX:
            return each
        return sockets.enter_context(_bound(each.family, each.type, each.proto, each.getsockname(), shared=True))

    return Bound([again(each) for each in like.main], [again(each) for each in like.admin], lambda: None)


def _bind_port(host: str, port: int, sockets: ExitStack, *, shared: bool) -> list[socket.socket]:
    """A socket for each address of the host that this machine has, all on one port."""
    bound: list[socket.socket] = []
    try:
        absent: OSError | None = None
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            place = (address[0], bound[0].getsockname()[1], *address[2:]) if bound else address
            try:
                if shared:  # another gateway would share its port in silence
                    _bound(family, kind, protocol, place, shared=False).close()
                bound.append(sockets.enter_context(_bound(family, kind, protocol, place, shared=shared)))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
        if absent is not None and not bound:
            raise absent
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror or str(error)}") from error
    return bound


def _bound(family: int, kind: int, protocol: int, address: Sequence[object], *, shared: bool) -> socket.socket:
    bound = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:  # `::` is every address, those of IPv4 too; any other one is itself alone
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        bound.bind(address)  # type: ignore[arg-type]  # as getaddrinfo and getsockname give it
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


def _bind_file(path: str, mode: int, files: ExitStack) -> socket.socket:
    """`files` takes the file away, where it is still this one."""
    if sys.platform == "win32":
        raise CannotListen("server.unix: this system has no socket files")
    bound = socket.socket(socket.AF_UNIX)
    try:
        _make_room(path)
        others = os.umask(0o777 ^ mode)  # so the file is never there with another mode
        try:
            bound.bind(path)
        finally:
            os.umask(others)
        files.callback(_take_away, path, os.stat(path).st_ino)
    except OSError as error:
        bound.close()
        raise CannotListen(f"cannot listen on {path}: {error.strerror or str(error)}") from error
    bound.setblocking(False)
    return bound


def _make_room(path: str) -> None:
    """Takes away a socket file that nobody listens on, as a process that was killed leaves it. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)
            return
        except BlockingIOError:  # so many wait for it
            pass
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _take_away(path: str, inode: int) -> None:
    try:
        if os.stat(path).st_ino == inode:  # else another gateway has put its own there
            os.unlink(path)
    except FileNotFoundError:
        return
