"""What a gateway listens on: every address of its host, or a socket file, which nobody but its users may open."""

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from gateway.cli import main
from gateway.client import AsyncGateway, Gateway
from gateway.config.sections.server import Server
from gateway.server.process.listening import CannotListen, address_of, bind_all, rebind
from tests.gateway.server.process.served import ROOT, SERVE, children, holding, serving

Addresses = Callable[[str], list[tuple[int, int, int, str, tuple[object, ...]]]]


@pytest.fixture
def resolving(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets every name stand for these addresses."""

    def resolve(*hosts: str) -> None:
        def getaddrinfo(host: str, port: int, **options: object) -> list[tuple[object, ...]]:
            return [
                (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (one, port, 0, 0))
                if ":" in one
                else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port))
                for one in hosts
            ]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    return resolve


@pytest.mark.parametrize("shared", [False, True])
def test_a_name_is_served_at_every_address_of_it_on_one_port(resolving: Callable[..., None], shared: bool) -> None:
    resolving("::1", "127.0.0.1")
    with ExitStack() as sockets:
        bound = bind_all(Server(host="localhost", port=0, admin_port=0), sockets, shared=shared)
        for group in (bound.main, bound.admin):
            port = group[0].getsockname()[1]
            assert [address_of(each) for each in group] == [f"[::1]:{port}", f"127.0.0.1:{port}"]
        if shared:
            again = rebind(bound, sockets)
            assert list(map(address_of, again.main)) == list(map(address_of, bound.main))


def test_an_address_that_this_machine_does_not_have_is_left_out_but_for_the_last_one(
    resolving: Callable[..., None],
) -> None:
    resolving("2001:db8::1", "127.0.0.1")
    with ExitStack() as sockets:
        bound = bind_all(Server(host="localhost", port=0), sockets)
        assert [each.getsockname()[0] for each in bound.main] == ["127.0.0.1"]
    resolving("2001:db8::1")
    with ExitStack() as sockets, pytest.raises(CannotListen, match="localhost:0"):
        bind_all(Server(host="localhost", port=0), sockets)


def test_a_port_in_use_at_one_of_the_addresses_is_told(resolving: Callable[..., None]) -> None:
    resolving("127.0.0.1", "::1")
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken, ExitStack() as sockets:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match="Address already in use"):
            bind_all(Server(host="localhost", port=port), sockets)


def test_all_of_ipv6_is_all_of_ipv4_too() -> None:
    with ExitStack() as sockets:
        (bound,) = bind_all(Server(host="::", port=0), sockets).main
        bound.listen()
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, bound.getsockname()[1]), timeout=5).close()


def test_a_client_of_ipv4_is_told_as_such_where_all_of_ipv6_is_served(tmp_path: Path) -> None:
    server = ", host: '::'"
    extra = "auth: {keys: [{id: a, secret: secret-of-a}]}\n"
    with serving(tmp_path, server=server, extra=extra) as (process, address):
        port = address.rpartition(":")[2]
        assert httpx.get(f"http://127.0.0.1:{port}/v1/models").status_code == 401
        assert process.stderr is not None
        assert '"client":"127.0.0.1"' in process.stderr.readline()


def by_file(file: Path) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(file)), base_url="http://localhost")


@pytest.mark.parametrize(("workers", "mode"), [(1, ""), (2, ", unix_mode: '660'")])
def test_a_socket_file_is_served_with_its_mode_and_goes_with_the_gateway(
    tmp_path: Path, workers: int, mode: str
) -> None:
    file = tmp_path / "gateway.sock"
    with serving(tmp_path, server=f", unix: {file}, workers: {workers}{mode}") as (process, address):
        assert address == f"unix:{file}"
        assert stat.S_IMODE(file.stat().st_mode) == (0o660 if mode else 0o600)
        with by_file(file) as client:
            assert client.get("/v1/models").status_code == 200
            assert client.get("/v1/models", headers={"Host": "rebound.example"}).status_code == 403
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert not file.exists()


def test_a_proxy_behind_the_socket_file_tells_the_client_s_address(tmp_path: Path) -> None:
    file = tmp_path / "gateway.sock"
    with serving(tmp_path, server=f", unix: {file}") as (process, _), by_file(file) as client:
        assert client.get("/v1/models", headers={"X-Forwarded-For": "192.0.2.1"}).status_code == 200
        assert client.get("/v1/models").status_code == 200
        assert process.stderr is not None
        assert '"client":"192.0.2.1"' in process.stderr.readline()
        assert '"client"' not in process.stderr.readline()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_worker_that_ends_does_not_take_the_file_of_the_others(tmp_path: Path) -> None:
    file = tmp_path / "gateway.sock"
    with serving(tmp_path, server=f", unix: {file}, workers: 2") as (process, _):
        os.kill(children(process)[0], signal.SIGTERM)
        assert process.stderr is not None
        assert "is started again" in process.stderr.readline()
        with by_file(file) as client:
            assert client.get("/healthz").status_code == 200


async def test_nobody_new_comes_by_the_file_while_a_request_ends(tmp_path: Path) -> None:
    file = tmp_path / "gateway.sock"
    async with holding(tmp_path, f", unix: {file}, workers: 2") as held:
        held.signal(signal.SIGTERM)
        await held.closed()
        held.let_go()
        assert "late" in (await held.answer).text
        assert await held.ended() == 0


def start(folder: Path, file: Path) -> str:
    """What a gateway says that cannot start."""
    config = folder / "run.yaml"
    config.write_text(
        f"version: 1\nserver: {{unix: {file}}}\n"
        "providers: {up: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\n"
    )
    command = [sys.executable, "-c", SERVE, str(config)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=30)
    assert done.returncode == 1
    return done.stderr


def test_a_file_that_a_killed_gateway_left_is_replaced_and_nobody_else_s_is(tmp_path: Path) -> None:
    file = tmp_path / "gateway.sock"
    with serving(tmp_path, server=f", unix: {file}") as (process, _):
        process.kill()
        process.wait(10)
        assert file.is_socket()
    with serving(tmp_path, server=f", unix: {file}"):
        in_use = f"gateway: cannot listen on {file}: Address already in use\n"
        assert start(tmp_path, file) == in_use
        with by_file(file) as client:
            assert client.get("/healthz").status_code == 200
    file.unlink()
    file.write_text("not a socket")
    assert start(tmp_path, file) == in_use
    assert file.read_text() == "not a socket"
    assert "No such file or directory" in start(tmp_path, tmp_path / "nowhere" / "gateway.sock")


async def test_the_sdk_and_the_commands_reach_it_by_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gateway.sock"
    with serving(tmp_path, server=f", unix: {file}", extra="models: {fast: up/m}\n"):
        with Gateway(base_url=f"unix:{file}") as client:
            assert [model.id for model in client.with_options(timeout=5).models.list()] == ["fast"]
        monkeypatch.setenv("LLM_GATEWAY_URL", f"unix:{file}")
        async with AsyncGateway() as asynchronous:
            assert [model.id async for model in asynchronous.models.list()] == ["fast"]
        config = ["--config", str(tmp_path / "run.yaml")]
        assert main(["models", *config]) == 0
        said = capsys.readouterr()
        assert "fast" in said.out
        assert said.err == ""
