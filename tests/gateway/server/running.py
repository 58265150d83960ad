"""A gateway with scripted providers on a real loopback socket, for tests of what clients see."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import orjson

from adapters.canonical.events import ChoiceFinished, Started, TextDelta, UsageReported
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from gateway.config import Config, parse_config
from gateway.server.app import Surroundings, build_app
from gateway.server.lifetime import App
from providers.base import Batch, Provider
from tests.serving import listening

FINISH: Batch = [ChoiceFinished(0, StopReason.STOP)]
HELLO: list[Batch] = [
    [Started(id="up", request_id="up-req-1")],
    [TextDelta(0, 0, "Hello")],
    [TextDelta(0, 0, " there"), *FINISH, UsageReported(Usage(prompt_tokens=3, completion_tokens=2))],
]
"""A good answer."""


def text(value: str) -> Batch:
    return [TextDelta(0, 0, value)]


def chat(model: str = "fake/m", **fields: object) -> dict[str, object]:
    """A chat request's body."""
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}


def configure(extra: str = "", *, names: tuple[str, ...] = ("fake",)) -> Config:
    """A configuration with one provider for each name; what is kept is kept in memory, unless `extra` says where."""
    if "storage:" not in extra:
        extra += "storage: {url: memory}\n"
    rows = "".join(f"  {name}: {{type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\n" for name in names)
    return parse_config(f"version: 1\nproviders:\n{rows}{extra}", {}, provider_types=["openai-compatible"])


@dataclass
class Running:
    """`url` ends without a slash; `log` holds what was logged, in JSON lines."""

    url: str
    port: int
    app: App
    session: aiohttp.ClientSession
    log: io.BytesIO

    def post(
        self, body: object, path: str = "/v1/chat/completions", **options: object
    ) -> "aiohttp.client._RequestContextManager":
        return self.session.post(self.url + path, json=body, **options)  # type: ignore[arg-type]

    def lines(self) -> list[dict[str, object]]:
        """The log so far."""
        self.app.log.flush()
        return [orjson.loads(line) for line in self.log.getvalue().splitlines()]


@asynccontextmanager
async def running(
    *providers: Provider, extra: str = "", config: Config | None = None, token: Callable[[], str] | None = None
) -> AsyncIterator[Running]:
    """Serves until the block is left. `config` stands in place of one with `extra`."""
    log = io.BytesIO()
    around = Surroundings(log=log) if token is None else Surroundings(log=log, token=token)
    named = {provider.name: provider for provider in providers}
    app = build_app(config or configure(extra, names=tuple(named)), providers=named, around=around)
    async with listening(app) as url, aiohttp.ClientSession() as session:
        yield Running(url, int(url.rpartition(":")[2]), app, session, log)


async def until(condition: Callable[[], bool], within_s: float = 1.0) -> None:
    """Lets the loop run until the condition holds. Fails after `within_s`."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  # what is watched belongs to the code under test
            await asyncio.sleep(0)


async def error_of(answer: aiohttp.ClientResponse) -> dict[str, object]:
    """The error object of an answer, which must be OpenAI's and JSON."""
    assert answer.headers["content-type"].startswith("application/json")
    body = orjson.loads(await answer.read())
    error: dict[str, object] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error
