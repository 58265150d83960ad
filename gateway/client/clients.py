"""`Gateway` and `AsyncGateway`: OpenAI's clients whose address and key come from arguments, environment, or defaults.

client = Gateway()                           # LLM_GATEWAY_URL, or http://127.0.0.1:8080; with or without /v1
client = Gateway(base_url="unix:/run/gateway.sock")
client = Gateway.embedded("run.yaml")        # the gateway in this process; close() ends it
client.chat.completions.create(model="fast", messages=[...])
"""

import asyncio
import os
from typing import Any, BinaryIO, Self

import openai

from gateway.client.embedded import EmbeddedGateway, read_config
from gateway.client.transport import AsyncPipeTransport, PipeTransport, http
from gateway.config import Config

__all__ = ["AsyncGateway", "Gateway"]

_DEFAULT_URL = "http://127.0.0.1:8080"
_VERSION = "/v1"
_FILE = "unix:"
_LOCAL_URL = "http://localhost"
"""Of a gateway that is not reached by its address."""
_NO_SOCKETS = "ws://localhost:0/v1"
"""OpenAI's client opens WebSockets by itself, past the transport: one has to fail, and not to reach a server of this
machine with the gateway's key."""
_NO_KEY = "none"
"""What stands in for a key where the gateway asks for none; openai's client must have one."""
_TIMEOUT_S = 600.0


def _place(given: object) -> tuple[str, str | None]:
    """The address of the API, where that of the gateway alone was given too, and the socket file of `unix:FILE`, or of
    `unix:FILE:/PREFIX`, where the paths of the gateway begin with a prefix."""
    url = str(given or os.environ.get("LLM_GATEWAY_URL") or _DEFAULT_URL).rstrip("/")
    file = None
    if url.startswith(_FILE):
        file, _, path = url[len(_FILE) :].partition(":/")
        url = f"{_LOCAL_URL}/{path}".rstrip("/")
    return url if url.endswith(_VERSION) else url + _VERSION, file


def _by_file(client: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a client that reaches its gateway by a socket file."""
    return {"http_client": client, "websocket_base_url": _NO_SOCKETS, **options}


def _key(given: object) -> Any:
    return given or os.environ.get("LLM_GATEWAY_API_KEY") or _NO_KEY


def _embedded_key(config: Config) -> str:
    """Whoever runs the gateway in this process holds its keys: the first one, where it asks for one."""
    keys = config.auth.keys if config.auth is not None else ()
    return keys[0].secret.get_secret_value() if keys else _NO_KEY


def _embedded(
    config: str | os.PathLike[str], api_key: object, log: BinaryIO | None
) -> tuple[EmbeddedGateway, dict[str, Any]]:
    """A gateway in this process, and what a client is told of it."""
    read = read_config(config)
    place = {
        "base_url": f"{_LOCAL_URL}{read.server.path_prefix}{_VERSION}",
        "websocket_base_url": _NO_SOCKETS,
        "api_key": api_key or _embedded_key(read),
    }
    return EmbeddedGateway.from_config(read, log), place


class Gateway(openai.OpenAI):
    """An openai.OpenAI that speaks to a gateway. `options` are OpenAI's own."""

    _inside: EmbeddedGateway | None = None

    def __init__(self, *, base_url: object = None, api_key: object = None, **options: Any) -> None:
        url, file = _place(base_url)
        if file is not None and "http_client" not in options:
            options = _by_file(openai.DefaultHttpxClient(transport=http.HTTPTransport(uds=file)), options)
        super().__init__(base_url=url, api_key=_key(api_key), **options)

    @classmethod
    def embedded(
        cls, config: str | os.PathLike[str], *, api_key: object = None, log: BinaryIO | None = None, **options: Any
    ) -> Self:
        """A client with the gateway of this run.yaml inside; `close` ends both. Log lines go to `log`.

        Raises ConfigError, or ValueError or ImportError where a provider can't be built.
        """
        inside, place = _embedded(config, api_key, log)
        way = http.Client(transport=PipeTransport(inside), timeout=_TIMEOUT_S)
        client = cls(http_client=way, **place, **options)
        client._inside = inside
        return client

    def copy(self, **options: Any) -> Self:
        made = super().copy(**options)
        made._inside = self._inside if made._client is self._client else None
        return made

    with_options = copy

    def wait_until_loaded(self, model: str) -> None:
        """Blocks while a gateway inside is loading this model. Of another gateway nothing is known: returns at once."""
        if self._inside is not None:
            self._inside.wait_until_loaded(model)


class AsyncGateway(openai.AsyncOpenAI):
    """The same for asyncio."""

    _inside: EmbeddedGateway | None = None

    def __init__(self, *, base_url: object = None, api_key: object = None, **options: Any) -> None:
        url, file = _place(base_url)
        if file is not None and "http_client" not in options:
            way = http.AsyncHTTPTransport(uds=file)
            options = _by_file(openai.DefaultAsyncHttpxClient(transport=way), options)
        super().__init__(base_url=url, api_key=_key(api_key), **options)

    @classmethod
    def embedded(
        cls, config: str | os.PathLike[str], *, api_key: object = None, log: BinaryIO | None = None, **options: Any
    ) -> Self:
        """A client with the gateway of this run.yaml inside; `await close()` ends both. Log lines go to `log`.

        Raises ConfigError, or ValueError or ImportError where a provider can't be built.
        """
        inside, place = _embedded(config, api_key, log)
        way = http.AsyncClient(transport=AsyncPipeTransport(inside), timeout=_TIMEOUT_S)
        client = cls(http_client=way, **place, **options)
        client._inside = inside
        return client

    def copy(self, **options: Any) -> Self:
        made = super().copy(**options)
        made._inside = self._inside if made._client is self._client else None
        return made

    with_options = copy

    async def wait_until_loaded(self, model: str) -> None:
        """Waits while a gateway inside is loading this model. Of another gateway nothing is known: returns at once."""
        if self._inside is not None:
            await asyncio.to_thread(self._inside.wait_until_loaded, model)
