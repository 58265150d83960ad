"""Clients that show a certificate, and files that are taken anew while connections go on."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.config.sections.server import Tls
from gateway.server.process.tls import ServerTls
from tests.certificates import certificate
from tests.gateway.http.hosted import Hosted, get, hosted


class Party:
    """Who shows a certificate that it has made itself."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.cert, self.key = certificate(folder)

    def trusting(self, other: "Party", *, shows: bool = True) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(other.cert))
        if shows:
            context.load_cert_chain(self.cert, self.key)
        return context


class Parties:
    def __init__(self, folder: Path) -> None:
        self.server, self.client, self.stranger = (Party(folder / name) for name in ("server", "client", "stranger"))

    def tls(self, authority: Party | None = None, server: Party | None = None) -> Tls:
        shown = server or self.server
        return Tls(
            cert=str(shown.cert), key=str(shown.key), client_ca=None if authority is None else str(authority.cert)
        )


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return Parties(tmp_path)


async def status(server: Hosted, context: ssl.SSLContext) -> int:
    async with server.client(context) as client:
        await client.send(get("/echo"))
        return (await client.answer())[0]


async def is_refused(server: Hosted, context: ssl.SSLContext) -> bool:
    """TLS 1.3 tells a client only after its handshake."""
    try:
        async with server.client(context) as client:
            await client.send(get("/echo"))
            return await client.end() == b""
    except ssl.SSLError:
        return True


@asynccontextmanager
async def serving(tls: ServerTls) -> AsyncIterator[Hosted]:
    async with hosted(tls=tls.context) as server:
        yield server


async def test_only_clients_with_a_certificate_of_the_authority_are_served(parties: Parties) -> None:
    async with serving(ServerTls(parties.tls(parties.client))) as server:
        assert await status(server, parties.client.trusting(parties.server)) == 200
        assert await is_refused(server, parties.client.trusting(parties.server, shows=False))
        assert await is_refused(server, parties.stranger.trusting(parties.server))
        assert not server.service.requests[1:]


async def test_a_client_without_certificates_needs_none_where_none_are_asked_for(parties: Parties) -> None:
    async with serving(ServerTls(parties.tls())) as server:
        assert await status(server, parties.client.trusting(parties.server, shows=False)) == 200


async def test_another_authority_is_taken_in_place_of_the_one_before(parties: Parties) -> None:
    tls = ServerTls(parties.tls(parties.client))
    before, after = parties.client.trusting(parties.server), parties.stranger.trusting(parties.server)
    async with serving(tls) as server, server.client(before) as kept:
        await kept.send(get("/echo"))
        assert (await kept.answer())[0] == 200
        tls.take(parties.tls(parties.stranger))
        assert await status(server, after) == 200
        assert await is_refused(server, before)
        await kept.send(get("/echo"))
        assert (await kept.answer())[0] == 200


async def test_a_session_is_not_taken_up_again_where_clients_show_certificates(parties: Parties) -> None:
    context = parties.client.trusting(parties.server)
    async with serving(ServerTls(parties.tls(parties.client))) as server, server.client(context) as client:
        await client.send(get("/echo"))
        await client.answer()
        secured: ssl.SSLObject = client.writer.get_extra_info("ssl_object")
        assert secured.version() == "TLSv1.3"
        assert secured.session is None or not secured.session.has_ticket


async def test_another_certificate_of_the_server_s_own_is_taken(parties: Parties) -> None:
    tls = ServerTls(parties.tls())
    async with serving(tls) as server:
        tls.take(parties.tls(server=parties.stranger))
        assert await status(server, parties.client.trusting(parties.stranger)) == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await status(server, parties.client.trusting(parties.server))


async def test_files_that_are_none_change_nothing(parties: Parties, tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("nothing")
    tls = ServerTls(parties.tls(parties.client))
    async with serving(tls) as server:
        broken = parties.tls(parties.client).model_copy(update={"client_ca": str(tmp_path / "none.pem")})
        with pytest.raises(ValueError, match=r"server\.tls\.client_ca: .*none\.pem holds no readable certificate"):
            await asyncio.to_thread(tls.take, broken)
        assert await status(server, parties.client.trusting(parties.server)) == 200
