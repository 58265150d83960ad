"""Where a request came from, as its line in the log tells it: the connection's word, or that of a proxy."""

import pytest

from gateway.config import ConfigError
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, chat, configure, running

LONG = ", ".join(["9.9.9.9"] * 1000)


async def client_of(proxies: str, **headers: str) -> object:
    """The address in the log of a request from 127.0.0.1."""
    provider = ScriptedProvider("fake", HELLO)
    async with running(provider, extra=f"server: {{trusted_proxies: {proxies}}}\n") as gateway:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with gateway.post(chat(), headers=sent) as answer:
            assert answer.status == 200
        return gateway.lines()[-1]["client"]


async def test_it_is_the_connection_s_where_no_proxy_is_trusted() -> None:
    assert await client_of("[]", x_forwarded_for="192.0.2.1", forwarded="for=192.0.2.1") == "127.0.0.1"


async def test_it_is_the_connection_s_where_that_is_of_another_network() -> None:
    assert await client_of("[10.0.0.0/8]", x_forwarded_for="192.0.2.1") == "127.0.0.1"


@pytest.mark.parametrize(
    ("told", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:4711", "192.0.2.1"),
        ("[2001:DB8::0:1]:4711", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("6.6.6.6, 192.0.2.1", "192.0.2.1"),
        ("6.6.6.6, 192.0.2.1, 10.1.2.3", "192.0.2.1"),
        ("6.6.6.6, 192.0.2.1,10.1.2.3 ,  127.0.0.9", "192.0.2.1"),
        ("10.1.2.3, 10.1.2.4", "10.1.2.3"),
        ("6.6.6.6, unknown, 10.1.2.3", "10.1.2.3"),
        ("6.6.6.6, fe80::1%a-word", "127.0.0.1"),
        (f"6.6.6.6, {'1' * 65}", "127.0.0.1"),
        (f"{LONG}, 192.0.2.1", "192.0.2.1"),
        ("6.6.6.6, ", "127.0.0.1"),
    ],
)
async def test_it_is_the_hop_before_the_outermost_trusted_proxy(told: str, client: str) -> None:
    assert await client_of("[127.0.0.0/8, 10.0.0.0/8]", x_forwarded_for=told) == client


@pytest.mark.parametrize(
    ("told", "client"),
    [
        ("for=192.0.2.1;proto=https;by=10.1.2.3", "192.0.2.1"),
        ('For="[2001:db8::1]:4711"', "2001:db8::1"),
        ("for=6.6.6.6, for=192.0.2.1;host=h, for=10.1.2.3", "192.0.2.1"),
        ('for=192.0.2.1;host="h, for=6.6.6.6"', "192.0.2.1"),
        ("for=_hidden", "127.0.0.1"),
        ('for="6.6.6.6, for=192.0.2.1;host="h;for=6.6.6.6"', "127.0.0.1"),
        ("for=6.6.6.6 for=192.0.2.1", "127.0.0.1"),
    ],
)
async def test_the_standard_s_header_is_read_where_it_is_the_only_one(told: str, client: str) -> None:
    assert await client_of("[127.0.0.1, 10.0.0.0/8]", forwarded=told) == client
    assert await client_of("[127.0.0.1, 10.0.0.0/8]", forwarded=told, x_forwarded_for="198.51.100.7") == "198.51.100.7"


@pytest.mark.parametrize("network", ["10.0.0.1/8", "proxy.local", "10.0.0.0/33"])
def test_what_is_no_network_is_a_fault_of_the_file(network: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.trusted_proxies\[0\]"):
        configure(f"server: {{trusted_proxies: [{network}]}}\n")
