"""A gateway behind a proxy that does not take away what its paths begin with."""

import asyncio
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.client import Gateway
from gateway.config import ConfigError
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, chat, configure, error_of, running

PREFIX = "server: {path_prefix: /team/llm}\n"
KEYS = "auth: {keys: [{id: a, secret: secret-of-a, admin: true}]}\ntelemetry: {prometheus: true}\n"


async def test_all_paths_begin_with_it_and_those_of_health_stand_alone_too() -> None:
    async with running(ScriptedProvider("fake", HELLO), extra=PREFIX + KEYS) as gateway:
        for path in ("/healthz", "/health", "/readyz"):
            for start in ("", "/team/llm"):
                async with gateway.session.get(f"{gateway.url}{start}{path}") as answer:
                    assert answer.status == 200
        headers = {"x-api-key": "secret-of-a"}
        async with gateway.post(chat(), "/team/llm/v1/chat/completions", headers=headers) as answer:
            assert answer.status == 200
        async with gateway.session.get(f"{gateway.url}/team/llm/metrics", headers=headers) as answer:
            assert 'http_route="/v1/chat/completions"' in await answer.text()
        async with gateway.post(chat(), headers=headers) as answer:
            assert answer.status == 404
            assert "did you mean /team/llm/v1/chat/completions?" in str((await error_of(answer))["message"])
        assert [line["path"] for line in gateway.lines()] == [
            "/team/llm/v1/chat/completions",
            "/team/llm/metrics",
            "/v1/chat/completions",
        ]


async def test_errors_beneath_it_are_those_of_the_path_s_dialect() -> None:
    async with running(ScriptedProvider("fake", HELLO), extra=PREFIX) as gateway:
        async with gateway.session.get(f"{gateway.url}/team/llm/api/nothing") as answer:
            assert answer.status == 404
            assert isinstance((await answer.json())["error"], str)
        async with gateway.session.get(f"{gateway.url}/team/llm/v1beta/nothing") as answer:
            assert (await answer.json())["error"]["status"] == "NOT_FOUND"


async def test_the_sdk_with_the_gateway_inside_and_the_commands_know_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "version: 1\nstorage: {url: memory}\nserver: {unix: ./gateway.sock, path_prefix: /team/llm}\n"
        "providers: {fake: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\nmodels: {fast: fake/m}\n"
    )
    with Gateway.embedded(config) as client:
        assert [model.id for model in client.models.list()] == ["fast"]
    async with running(ScriptedProvider("fake", HELLO), extra=PREFIX + "models: {quick: fake/m}\n") as gateway:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(gateway.app.connections, tmp_path / "gateway.sock")
        assert await asyncio.to_thread(main, ["models", "--config", str(config)]) == 0
        server.close()
    assert "quick" in capsys.readouterr().out


@pytest.mark.parametrize("prefix", ["llm", "/llm/", "/", "/a//b", "/a b"])
def test_what_is_no_beginning_of_a_path_is_a_fault_of_the_file(prefix: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.path_prefix: expected the beginning of a path, as /llm"):
        configure(f"server: {{path_prefix: '{prefix}'}}\n")
