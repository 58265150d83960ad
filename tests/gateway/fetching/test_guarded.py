"""Nobody leads the gateway into a private network: not by an address, a name, a redirect, or a name that changes."""

import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from adapters.canonical.errors import InvalidRequest
from gateway.config.sections.tools import Fetch
from gateway.fetching.addresses import is_public
from gateway.fetching.guarded import GuardedFetcher
from tests.mock_upstream import Answer, MockUpstream

PNG = Answer(headers={"content-type": "image/png; x=y"}, pieces=(b"pixels",), framing="length")


class Names(AbstractResolver):
    """A name server of a test: each name has its answers in turn, the last one repeats."""

    def __init__(self, names: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._answers = {name: list(answers) for name, answers in names.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked.append(host)
        answers = self._answers[host]
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in addresses
        ]

    async def close(self) -> None:
        pass


@asynccontextmanager
async def fetching(resolver: AbstractResolver | None = None, **rules: object) -> AsyncIterator[GuardedFetcher]:
    settings = Fetch.model_validate({"schemes": ("https", "http", "data"), **rules})
    fetcher = GuardedFetcher(settings, total_s=5, resolver=resolver)
    try:
        yield fetcher
    finally:
        await fetcher.aclose()


async def refusal(fetcher: GuardedFetcher, url: str) -> str:
    with pytest.raises(InvalidRequest) as raised:
        await fetcher.fetch(url, param="messages[0]")
    assert raised.value.param == "messages[0]"
    return raised.value.message


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "198.18.0.1", "192.0.2.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
        "2001:0:0:0:0:0:80ff:fffe", "2001:db8::1", "not an address",
    ],
)  # fmt: skip
def test_no_private_address_is_public_however_it_is_written(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:{port}/a", "http://[::ffff:127.0.0.1]:{port}/a", "http://127.1:{port}/a",
     "http://2130706433:{port}/a", "http://0x7f000001:{port}/a", "http://localhost:{port}/a", "http://0:{port}/a"],
)  # fmt: skip
async def test_an_address_of_this_machine_is_never_dialled(url: str) -> None:
    async with MockUpstream(PNG) as upstream, fetching() as fetcher:
        port = upstream.base_url.rsplit(":", 1)[1].split("/")[0]
        await refusal(fetcher, url.format(port=port))
        assert upstream.connections == 0


async def test_a_name_that_leads_to_a_private_address_is_refused_without_saying_which() -> None:
    names = Names({"inside.example": [["127.0.0.1"]], "both.example": [["8.8.8.8", "10.0.0.1"]]})
    async with fetching(names) as fetcher:
        for host in ("inside.example", "both.example"):
            told = await refusal(fetcher, f"http://{host}/a")
            assert "public network" in told
            assert "127.0.0.1" not in told
            assert "10.0.0.1" not in told


async def test_an_allowed_host_may_be_private_but_not_lead_elsewhere() -> None:
    redirect = Answer(status=302, headers={"location": "http://169.254.169.254/secrets"}, framing="length")
    async with MockUpstream(redirect) as upstream, fetching(allow_hosts=("127.0.0.1",)) as fetcher:
        told = await refusal(fetcher, upstream.base_url + "/a")
        assert "169.254" not in told
        assert len(upstream.requests) == 1


async def test_a_redirect_is_followed_to_where_it_may_go() -> None:
    redirect = Answer(status=302, headers={"location": "/b"}, framing="length")
    async with MockUpstream(redirect, PNG) as upstream, fetching(allow_hosts=("127.0.0.1",)) as fetcher:
        found = await fetcher.fetch(upstream.base_url + "/a")
        assert (found.data, found.media_type) == (b"pixels", "image/png")


async def test_redirects_end() -> None:
    redirect = Answer(status=302, headers={"location": "/b"}, framing="length")
    async with MockUpstream(redirect) as upstream, fetching(allow_hosts=("127.0.0.1",)) as fetcher:
        assert "redirects" in await refusal(fetcher, upstream.base_url + "/a")
        assert len(upstream.requests) == 6


async def test_a_name_that_changes_between_the_check_and_the_call_gains_nothing() -> None:
    """One answer of the name server is both checked and dialled."""
    async with MockUpstream(PNG) as upstream:
        port = upstream.base_url.rsplit(":", 1)[1].split("/")[0]
        names = Names({"changing.example": [["127.0.0.1"], ["8.8.8.8"]]})
        async with fetching(names) as fetcher:
            assert "public network" in await refusal(fetcher, f"http://changing.example:{port}/a")
        assert names.asked == ["changing.example"]
        assert upstream.connections == 0


async def test_what_is_too_large_is_not_read_to_its_end() -> None:
    large = Answer(headers={"content-type": "image/png"}, pieces=(b"x" * 2**20, b"x", b"x" * 2**20), framing="chunked")
    async with MockUpstream(large) as upstream, fetching(max_mb=1, allow_hosts=("127.0.0.1",)) as fetcher:
        assert "larger than 1 MiB" in await refusal(fetcher, upstream.base_url + "/a")


async def test_what_hangs_is_given_up() -> None:
    hanging = Answer(headers={"content-type": "image/png"}, pieces=(b"x",), framing="chunked", then="hang")
    rules = Fetch(schemes=("http",), allow_hosts=("127.0.0.1",))
    async with MockUpstream(hanging) as upstream:
        fetcher = GuardedFetcher(rules, total_s=0.2)
        assert "within 0.2 s" in await refusal(fetcher, upstream.base_url + "/a")
        await fetcher.aclose()


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://8.8.8.8/a", "gopher://8.8.8.8/a", "8.8.8.8", "", "http://"]
)
async def test_other_schemes_are_refused(url: str) -> None:
    async with fetching() as fetcher:
        await refusal(fetcher, url)


async def test_a_scheme_must_be_allowed() -> None:
    async with fetching(schemes=("https",)) as fetcher:
        assert "expected one of the schemes https" in await refusal(fetcher, "http://8.8.8.8/a")
        assert "expected one of the schemes https" in await refusal(fetcher, "data:image/png;base64,AAAA")


async def test_a_login_in_an_address_is_refused() -> None:
    async with fetching() as fetcher:
        assert "password" in await refusal(fetcher, "http://user:pass@8.8.8.8/a")


async def test_data_is_decoded() -> None:
    async with fetching(max_mb=1) as fetcher:
        assert (await fetcher.fetch("data:image/png;base64,AAEC")).data == b"\x00\x01\x02"
        assert (await fetcher.fetch("data:text/plain,a%20b")).media_type == "text/plain"
        assert "base64" in await refusal(fetcher, "data:image/png;base64,A*A")
        assert "larger" in await refusal(fetcher, "data:," + "x" * (2**20 + 1))
