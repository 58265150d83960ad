"""Where a request comes from, told by the connection or by the proxies that are believed. Decides nothing else."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

from gateway.http.request import Request

__all__ = ["ClientAddresses"]

_LONGEST = 64
"""Characters of an address with its port: more are none."""
_PAIR = re.compile(r"""\s*([\w!#$%&'*+.^`|~-]+)=("(?:[^"\\]|\\.)*"|[^\s;,"]*)\s*(?:[;,]|$)""", re.ASCII)
"""Of the header Forwarded, with what ends it (RFC 7239, section 4)."""


class ClientAddresses:
    """`trusted` are the networks of proxies that say who their clients are; whoever comes by a socket file is one."""

    def __init__(self, trusted: Sequence[str] = ()) -> None:
        self._networks = [ip_network(network) for network in trusted]
        self._hop = lru_cache(maxsize=4096)(self._look)

    def of(self, request: Request) -> str | None:
        """The address next to the outermost proxy that is trusted; None: nobody knows."""
        peer = request.wire.peer
        if peer is not None and not (self._networks and self._hop(peer)[1]):
            return peer
        client = peer
        for told in _told(request):
            address, is_trusted = self._hop(told) if len(told) <= _LONGEST else (None, False)
            if address is None:
                return client
            client = address
            if not is_trusted:
                return client
        return client

    def _look(self, told: str) -> tuple[str | None, bool]:
        """The address in it, and whether that is a proxy's."""
        told = told.strip()
        if told.startswith("["):
            told = told[1:].partition("]")[0]
        elif told.count(":") == 1:
            told = told.partition(":")[0]
        try:
            address = ip_address(told)
        except ValueError:
            return None, False
        if isinstance(address, IPv6Address):
            address = address.ipv4_mapped or address
            if isinstance(address, IPv6Address) and address.scope_id is not None:
                return None, False
        return str(address), any(address in network for network in self._networks)


def _told(request: Request) -> Iterator[str]:
    """The hops before the connection, the nearest first. A proxy writes one of two headers."""
    chain = request.headers.get("x-forwarded-for")
    if chain is None:
        yield from reversed(_forwarded_for(request.headers.get("forwarded", "")))
        return
    while chain:
        chain, _, hop = chain.rpartition(",")
        yield hop


def _forwarded_for(header: str) -> list[str]:
    """Empty where it is not well formed: a client could hide in an open quote what a proxy adds behind it."""
    hops: list[str] = []
    at = 0
    while at < len(header):
        pair = _PAIR.match(header, at)
        if pair is None:
            return []
        if pair[1].lower() == "for":
            hops.append(pair[2].strip('"'))
        at = pair.end()
    return hops
