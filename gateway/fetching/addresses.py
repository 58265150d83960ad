"""Which addresses may be dialled, and a resolver that gives no others: what was checked is what is dialled."""

import ipaddress
import socket
from collections.abc import Collection

from aiohttp.abc import AbstractResolver, ResolveResult

__all__ = ["CheckedResolver", "ForbiddenAddress", "is_public"]

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_6TO4 = ipaddress.ip_network("2002::/16")


class ForbiddenAddress(OSError):
    """The host is not, or not only, on the public network."""


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public network. Wrapped IPv4 addresses count as what they wrap."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = _wrapped(ip)
        if inner is not None:
            ip = inner
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)


def _wrapped(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    if ip in _6TO4:
        return ipaddress.IPv4Address((int(ip) >> 80) & 0xFFFFFFFF)
    return ip.teredo[1] if ip.teredo is not None else None


class CheckedResolver(AbstractResolver):
    """Asks `inner`, and gives its answer only if every address may be dialled: a name with one private address among
    public ones is not to be trusted at all. `allow_hosts` may resolve to anything."""

    def __init__(self, inner: AbstractResolver, *, private: bool, allow_hosts: Collection[str]) -> None:
        self._inner = inner
        self._private = private
        self._allow_hosts = frozenset(host.lower() for host in allow_hosts)

    def allows(self, host: str, address: str) -> bool:
        return self._private or host.lower().rstrip(".") in self._allow_hosts or is_public(address)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        if not all(self.allows(host, each["host"]) for each in found):
            raise ForbiddenAddress("the host is not on the public network")
        return found

    async def close(self) -> None:
        await self._inner.close()
