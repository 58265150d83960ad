"""HTTPS: the certificate of `server.tls`, and those that clients have to show."""

import ssl

from gateway.config.sections.server import Tls

__all__ = ["ServerTls", "tls_context"]


class ServerTls:
    """`context` is to listen with; a connection gets what was taken last."""

    def __init__(self, section: Tls) -> None:
        """Reads the files. Raises ValueError as `tls_context` does."""
        self.context = self._newest = tls_context(section)
        self.context.sni_callback = self._hand_over

    def take(self, section: Tls) -> None:
        """The files as they are now, for connections to come. Raises ValueError; what was taken before goes on."""
        self._newest = tls_context(section)

    def _hand_over(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """OpenSSL asks at the beginning of each handshake, whether the client names a server or not."""
        connection.context = self._newest


def tls_context(section: Tls) -> ssl.SSLContext:
    """TLS 1.2 and later, HTTP/1.1. Raises ValueError where the files hold no certificate with its key, or none of an
    authority.

    Where clients show certificates it is TLS 1.3, and no session is taken up again: one would outlive its authority.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(section.cert, section.key, password="")  # so that nobody is asked for one
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(f"server.tls: {section.cert} and {section.key} are no certificate with its key") from error
    if section.client_ca is not None:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(section.client_ca)
        except OSError as error:
            raise ValueError(f"server.tls.client_ca: {section.client_ca} holds no readable certificate") from error
    return context
