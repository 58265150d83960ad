"""The SDK: OpenAI's client against a gateway by address, and with a gateway inside."""

import asyncio
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from adapters.canonical.errors import UpstreamOverloaded
from adapters.canonical.events import TextDelta
from gateway.client import AsyncGateway, Gateway
from gateway.client.embedded import EmbeddedGateway
from gateway.client.transport import AsyncPipeTransport, PipeTransport, http
from gateway.config import ConfigError
from gateway.server.app import Surroundings, build_app
from gateway.server.lifetime import App
from providers.base import Readiness, ReadinessState
from providers.testing.scripted import Script, ScriptedProvider, Step
from tests.gateway.server.running import FINISH, HELLO, configure

ASK = {"model": "fake/m", "messages": [{"role": "user", "content": "hi"}]}
WITHIN_S = 5.0
ROOT = Path(__file__).parents[3]


class Inside:
    """An embedded gateway with a scripted provider, which lives on the gateway's loop."""

    def __init__(self, *scripts: Script) -> None:
        self.provider: ScriptedProvider
        self._scripts = scripts
        self.gateway = EmbeddedGateway(self._build)

    def _build(self) -> App:
        self.provider = ScriptedProvider("fake", *self._scripts)
        return build_app(configure(), providers={"fake": self.provider}, around=Surroundings(log=None))

    def sync(self, **options: object) -> Gateway:
        inside = http.Client(transport=PipeTransport(self.gateway))
        return Gateway(base_url="http://localhost/v1", http_client=inside, **options)

    def asynchronous(self, **options: object) -> AsyncGateway:
        inside = http.AsyncClient(transport=AsyncPipeTransport(self.gateway))
        return AsyncGateway(base_url="http://localhost/v1", http_client=inside, **options)

    def freed(self) -> bool:
        """Waits until the provider's streams are over; asked on the gateway's own loop."""

        async def over() -> bool:
            async with asyncio.timeout(WITHIN_S):
                while self.provider.open_streams:  # noqa: ASYNC110  # what is watched belongs to the code under test
                    await asyncio.sleep(0)
            return True

        return asyncio.run_coroutine_threadsafe(over(), self.gateway._loop).result(WITHIN_S)


def forever(request: object) -> Iterator[Step]:
    yield [TextDelta(0, 0, "first")]
    yield asyncio.Event()


def content(answer: object) -> str | None:
    assert isinstance(answer, openai.types.chat.ChatCompletion)
    return answer.choices[0].message.content


def test_the_address_and_the_key_come_from_arguments_then_environment_then_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LLM_GATEWAY_URL", raising=False)
    monkeypatch.delenv("LLM_GATEWAY_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "not for the gateway")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://elsewhere.example")
    plain = Gateway()
    assert (str(plain.base_url), plain.api_key) == ("http://127.0.0.1:8080/v1/", "none")
    monkeypatch.setenv("LLM_GATEWAY_URL", "http://gateway:9/v1")
    monkeypatch.setenv("LLM_GATEWAY_API_KEY", "k1")
    from_environment = AsyncGateway()
    assert (str(from_environment.base_url), from_environment.api_key) == ("http://gateway:9/v1/", "k1")
    given = Gateway(base_url="http://given/v1", api_key="k2")
    assert (str(given.base_url), given.api_key) == ("http://given/v1/", "k2")
    assert isinstance(given, openai.OpenAI)
    assert isinstance(from_environment, openai.AsyncOpenAI)


@pytest.mark.parametrize("url", ["http://given", "http://given/", "http://given/v1", "http://given/v1/"])
def test_the_address_may_be_that_of_the_gateway_or_of_its_api(url: str) -> None:
    assert str(Gateway(base_url=url).base_url) == "http://given/v1/"
    assert str(AsyncGateway(base_url=http.URL(url)).base_url) == "http://given/v1/"


@pytest.mark.parametrize("path", ["/pre", "/pre/", "/pre/v1"])
def test_the_address_of_a_socket_file_may_have_a_path_behind_it(path: str) -> None:
    assert str(Gateway(base_url=f"unix:/run/a.sock:{path}").base_url) == "http://localhost/pre/v1/"


def test_options_can_be_changed_on_a_copy() -> None:
    copy = Gateway(base_url="http://given/v1", api_key="k").with_options(timeout=3)
    assert isinstance(copy, Gateway)
    assert (str(copy.base_url), copy.api_key, copy.timeout) == ("http://given/v1/", "k", 3)


def test_an_embedded_gateway_answers_in_both_modes() -> None:
    with Inside(HELLO).sync() as client:
        assert content(client.chat.completions.create(**ASK)) == "Hello there"  # type: ignore[call-overload]
        stream = client.chat.completions.create(**ASK, stream=True)  # type: ignore[call-overload]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "Hello there"


def test_errors_are_openais_own() -> None:
    with Inside([UpstreamOverloaded("busy")]).sync(max_retries=0) as client:
        with pytest.raises(openai.InternalServerError, match="busy") as caught:
            client.chat.completions.create(**ASK)  # type: ignore[call-overload]
        assert caught.value.status_code == 503
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("org/unknown")


def test_pieces_of_a_stream_arrive_as_they_are_made_and_closing_it_cancels() -> None:
    inside = Inside(forever)
    with inside.sync() as client:
        stream = client.chat.completions.create(**ASK, stream=True)  # type: ignore[call-overload]
        texts = (chunk.choices[0].delta.content for chunk in stream)
        assert next(text for text in texts if text) == "first"
        assert inside.provider.open_streams == 1
        stream.close()
        assert inside.freed()


async def test_the_async_client_streams_and_cancels_too() -> None:
    inside = Inside(HELLO, forever)
    async with inside.asynchronous() as client:
        assert content(await client.chat.completions.create(**ASK)) == "Hello there"  # type: ignore[call-overload]
        stream = await client.chat.completions.create(**ASK, stream=True)  # type: ignore[call-overload]
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        assert await asyncio.to_thread(inside.freed)


async def test_cancelling_a_call_that_does_not_stream_frees_the_provider() -> None:
    inside = Inside(forever)
    async with inside.asynchronous() as client:
        call = asyncio.ensure_future(client.chat.completions.create(**ASK))  # type: ignore[call-overload]
        await asyncio.to_thread(
            lambda: asyncio.run_coroutine_threadsafe(inside.provider.waiting.wait(), inside.gateway._loop).result(5)
        )
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert await asyncio.to_thread(inside.freed)


async def test_many_calls_share_one_embedded_gateway() -> None:
    echo = Inside(lambda request: [[TextDelta(0, 0, f"for {request.user}")], FINISH])
    async with echo.asynchronous() as client:
        calls = [client.chat.completions.create(**ASK, user=str(n)) for n in range(20)]  # type: ignore[call-overload]
        answers = await asyncio.gather(*calls)
    assert [content(answer) for answer in answers] == [f"for {number}" for number in range(20)]


def test_closing_ends_the_gateway_its_providers_and_its_thread() -> None:
    before = threading.active_count()
    inside = Inside(HELLO)
    client = inside.sync(max_retries=0)
    assert threading.active_count() == before + 1
    client.close()
    inside.gateway.close()  # once more does nothing
    assert inside.provider.closed
    assert threading.active_count() == before
    with pytest.raises(ConnectionError):
        inside.gateway.connect()


def test_a_gateway_is_embedded_from_its_file_and_needs_no_key(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "version: 1\nauth: {keys: [{id: a, secret: the-secret}]}\nmodels: {fast: up/m}\n"
        "providers: {up: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\n"
    )
    with Gateway.embedded(config, max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["fast"]
        with pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model="fast", messages=[{"role": "user", "content": "hi"}])
        assert caught.value.status_code == 502


def test_lines_of_an_embedded_gateways_log_can_be_read_while_it_runs(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("version: 1\nproviders: {up: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\n")
    reading, writing = os.pipe()
    with (
        os.fdopen(reading, "rb") as read,
        os.fdopen(writing, "wb") as log,
        Gateway.embedded(config, log=log, max_retries=0) as client,
    ):
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="unknown", messages=[{"role": "user", "content": "hi"}])
        assert select.select([read], [], [], WITHIN_S)[0]


def test_an_embedded_gateway_is_never_looked_for_on_a_port(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("version: 1\nproviders: {up: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\n")
    with Gateway.embedded(config) as client:
        for each in (client, client.with_options(timeout=3)):
            manager = each.responses.connect()
            assert manager._prepare_url().port == 0
            with pytest.raises(OSError):  # each system has its own word for it
                manager.enter()


def test_a_copy_of_an_embedded_client_waits_for_models_too() -> None:
    inside = Inside(HELLO)
    with inside.sync() as client:
        client._inside = inside.gateway
        assert client.with_options(timeout=3)._inside is inside.gateway
        with http.Client() as other:
            assert client.copy(http_client=other)._inside is None


def test_a_wrong_file_is_told_by_the_constructor(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("version: 2\n")
    with pytest.raises(ConfigError):
        Gateway.embedded(config)


def test_a_model_that_is_loading_is_waited_for() -> None:
    inside = Inside(HELLO)
    try:
        inside.provider._readiness = Readiness(ReadinessState.LOADING)
        waiting = threading.Thread(target=inside.gateway.wait_until_loaded, args=("fake/m",), daemon=True)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        inside.provider._readiness = Readiness(ReadinessState.READY)
        waiting.join(WITHIN_S)
        assert not waiting.is_alive()
        inside.gateway.wait_until_loaded("no/such")
    finally:
        inside.gateway.close()


async def test_the_async_client_waits_for_models_too() -> None:
    inside = Inside(HELLO)
    async with inside.asynchronous() as client:
        await client.wait_until_loaded("fake/m")  # of a gateway elsewhere nothing is known
        client._inside = inside.gateway
        inside.provider._readiness = Readiness(ReadinessState.LOADING)
        waiting = asyncio.create_task(client.with_options(timeout=3).wait_until_loaded("fake/m"))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        inside.provider._readiness = Readiness(ReadinessState.READY)
        await asyncio.wait_for(waiting, WITHIN_S)
        async with http.AsyncClient() as other:
            assert client.copy(http_client=other)._inside is None


FORKS = """
import os, sys
from gateway.client import Gateway
client = Gateway.embedded(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        client._inside.connect()
    except ConnectionError:
        sys.exit(3)  # and not os._exit: what the parent registered for its end runs here as well
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(os.name != "posix", reason="forks")
def test_a_forked_process_has_no_part_in_the_gateway_and_ends_at_once(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("version: 1\nproviders: {up: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\n")
    done = subprocess.run([sys.executable, "-c", FORKS, str(config)], cwd=ROOT, capture_output=True, timeout=25)
    assert (done.returncode, done.stderr) == (3, b"")
