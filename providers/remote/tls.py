"""TLS towards upstreams: whom it trusts, and sessions that are taken up again, which spares half a handshake."""

import ssl
import sys
from asyncio import BaseTransport
from functools import cache

__all__ = ["ResumingContext", "trusting"]


class ResumingContext(ssl.SSLContext):
    """A client's context that remembers one session for each host. asyncio has no parameter for that, but asks here."""

    _sessions: dict[str, ssl.SSLSession]

    def keep_session(self, host: str, transport: BaseTransport) -> None:
        """For the next connection to this host. TLS 1.3 sends it with the first bytes after the handshake."""
        secured: ssl.SSLObject = transport.get_extra_info("ssl_object")
        session = secured.session
        if session is not None:
            self._sessions[host] = session

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        if isinstance(server_hostname, str):
            session = self._sessions.get(server_hostname)
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)


def trusting(ca_file: str | None, *, shared: bool = True) -> ResumingContext:
    """A context that trusts the authorities in this file, which may have changed since the last time, and no others;
    None: those of the system. `shared`: nobody changes it. Raises OSError where the file holds no readable certificate.
    """
    if ca_file is None and shared:
        return _trusting_as_system()
    context = _context()
    if ca_file is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca_file)
    return context


@cache
def _trusting_as_system() -> ResumingContext:
    """One for all, since it reads files for some 20 ms."""
    return trusting(None, shared=False)


def _context() -> ResumingContext:
    context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    context._sessions = {}
    context.set_alpn_protocols(["http/1.1"])
    if sys.version_info >= (3, 13):  # as create_default_context has it there
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    return context
