"""HTTPS: the certificate of `server.tls`."""

import ssl

from gateway.config.sections.server import Tls

__all__ = ["load_certificate", "tls_context"]


def tls_context(section: Tls) -> ssl.SSLContext:
    """TLS 1.2 and later, HTTP/1.1. Reads the files. Raises ValueError where they hold no certificate with its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, section)
    return context


def load_certificate(context: ssl.SSLContext, section: Tls) -> None:
    """Takes the files as they are now, for connections to come. Raises ValueError."""
    try:
        context.load_cert_chain(section.cert, section.key)
    except OSError as error:  # ssl.SSLError is one
        raise ValueError(f"server.tls: {section.cert} and {section.key} are no certificate with its key") from error
