"""`gateway bench` counts what it saw, and says what failed."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.cli.bench_load import Load, measure, report
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, Running, running


def load(gateway: Running, *, model: str = "fake/m", stream: bool = False) -> Load:
    return Load(
        url=gateway.url + "/v1/chat/completions",
        key=None,
        model=model,
        prompt="hi",
        max_tokens=5,
        stream=stream,
        clients=3,
        seconds=30,
        requests=9,
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_every_request_is_counted_with_its_tokens(stream: bool) -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        result = await measure(load(gateway, stream=stream))
    assert result["requests"] == 9
    assert result["errors"] == {}
    seconds = result["seconds"]
    assert isinstance(seconds, float)
    assert bool(result["first_output_ms"]) == stream
    assert "p99" in report(result)


async def test_failures_are_counted_by_status() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        result = await measure(load(gateway, model="no-such"))
    assert result["requests"] == 0
    assert result["errors"] == {"404": 9}
    assert "the model 'no-such' does not exist" in str(result["first_error"])
    assert "no-such" in report(result)


async def test_a_server_that_is_not_there_is_said_in_words() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        wanted = load(gateway)
    result = await measure(wanted)
    assert result["requests"] == 0
    assert "Cannot connect to host" in str(result["first_error"])


async def test_a_gateway_behind_a_socket_file_is_measured_too(tmp_path: Path) -> None:
    file = str(tmp_path / "gateway.sock")
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        server = await asyncio.get_running_loop().create_unix_server(gateway.app.connections, file)
        result = await measure(replace(load(gateway), url="http://localhost/v1/chat/completions", socket_file=file))
        server.close()
    assert result["requests"] == 9
