"""A gateway on a real loopback socket, with what stands behind it scripted: an upstream's bytes, or an engine's tokens.

    async with staged(case) as stage:
        reply = await stage.post()

The model's prefix in a case tells the provider: its type, and whether it is the local one.
"""

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from gateway.config import Config, parse_config
from gateway.config.sections.local import LocalProvider as LocalSection
from gateway.config.sections.tools import Fetch
from gateway.fetching.guarded import GuardedFetcher
from gateway.server.app import Surroundings, build_app
from gateway.server.lifetime import App
from gateway.server.provider_building import build_providers
from local_engine.sampling import SamplingDefaults
from providers.base import Provider, ProviderSettings
from providers.fetching import Fetcher
from providers.local.chat_template import ChatTemplate
from providers.local.image_input import ImageProcessor
from providers.local.load_progress import LoadProgress
from providers.local.local_model import LocalModel
from providers.local.provider import LocalProvider
from providers.local.settings import LocalModelSettings, LocalSettings
from providers.local.text_formats import text_formats
from providers.registry import provider_types
from tests.cases.case import Case
from tests.cases.reply import Reply
from tests.mock_upstream import Answer, MockUpstream
from tests.scripted_engine import EOS_ID, Script, ScriptedEngine, Vocabulary
from tests.serving import listening

__all__ = ["PLAIN_TEMPLATE", "Local", "Stage", "staged"]

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n"
    "{% for call in message.tool_calls %}{{ call.function.name }}({{ call.function.arguments | tojson }})\n{% endfor %}"
    "{% endfor %}assistant:"
)
"""Writes everything out, so that a test sees what reaches a template."""
_TYPES = {
    "resp": "openai-responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "ollama": "ollama",
}
"""The provider type behind a case's prefix; another prefix is a type itself, or an OpenAI-compatible server."""
_LOCAL = ("local", "base")


class Local:
    """What the local provider is made of: a scripted engine, or the files at `path` on the real one.

    `settings` are the model's row in run.yaml, `provider` more of the provider's. `images` reads those of requests for
    the scripted engine.
    """

    def __init__(
        self,
        *,
        path: Path | None = None,
        template: str = PLAIN_TEMPLATE,
        max_context: int = 4096,
        settings: Mapping[str, Any] | None = None,
        provider: Mapping[str, Any] | None = None,
        images: ImageProcessor | None = None,
    ) -> None:
        self._images = images
        self.vocabulary = Vocabulary()
        self.engine = ScriptedEngine(Script(steps=()), max_context=max_context)
        self.is_scripted = path is None
        self._row = {**(settings or {}), **({} if path is None else {"source": str(path)})}
        self._provider = provider or {}
        self._template = template

    def section(self, model: str) -> dict[str, Any]:
        """The provider's part of run.yaml."""
        return {"type": "local", "threads": 1, **self._provider, "models": {model: self._row}}

    def load(
        self, name: str, settings: LocalModelSettings, shared: LocalSettings, progress: LoadProgress
    ) -> LocalModel:
        for adapter, folder in settings.adapters.items():
            self.engine.load_adapter(adapter, Path(folder))
        template = ChatTemplate(self._template, bos_token="<s>", eos_token="</s>")
        return LocalModel(
            name=name,
            engine=self.engine,
            tokenizer=self.vocabulary,
            template=template,
            stop_token_ids=frozenset((EOS_ID,)),
            defaults=SamplingDefaults(),
            formats=text_formats(template, self.vocabulary, settings),
            images=self._images,
        )

    def says(self, *pieces: str | bytes, finish: str = "eos") -> None:
        """From now on, the engine answers with these, one a step."""
        ends = "length" if finish == "length" else "stop"
        self.engine.script(Script.pieces(self.vocabulary, pieces, finish=ends))  # type: ignore[arg-type]

    def prompt(self, number: int = -1) -> str:
        """A prompt that reached the engine."""
        return self.vocabulary.decode(self.engine.requests[number].prompt)


@dataclass
class Stage:
    """`upstream` stands behind every remote provider, `local` behind the local one."""

    url: str
    port: int
    app: App
    upstream: MockUpstream
    local: Local
    log: io.BytesIO
    _session: aiohttp.ClientSession
    _request: Mapping[str, Any]

    async def post(
        self, body: object = None, path: str | None = None, *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Sends a body (the case's own where it is None; bytes go as they are) and reads the whole answer."""
        data = self._request["body"] if body is None else body
        sent = data if isinstance(data, bytes) else json.dumps(data).encode()
        return await self.send("POST", path or self._request["path"], sent, headers=headers)

    async def both(self, body: Mapping[str, Any], path: str | None = None) -> tuple[Reply, Reply]:
        """The same request streamed and not streamed."""
        return await self.post({**body, "stream": True}, path), await self.post({**body, "stream": False}, path)

    async def get(self, path: str) -> Reply:
        return await self.send("GET", path)

    async def send(
        self, method: str, path: str, data: bytes | None = None, *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        all_headers = {"content-type": "application/json", **(headers or {})}
        body = None if data is None else io.BytesIO(data)
        async with self._session.request(method, self.url + path, data=body, headers=all_headers) as answer:
            lower = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status, lower, await answer.read())

    def sent(self, number: int = -1) -> Any:
        """A body that reached the upstream."""
        return json.loads(self.upstream.requests[number].body)

    def log_lines(self) -> list[dict[str, Any]]:
        self.app.log.flush()
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


@asynccontextmanager
async def staged(
    case: Case, *answers: Answer, local: Local | None = None, config: Mapping[str, Any] | None = None, key: str = ""
) -> AsyncIterator[Stage]:
    """The stage of a case until the block is left. `answers` are the upstream's (none: the case's own).

    `config` is more of run.yaml, `key` the provider's API key. Raises ConfigError where this version can't do it.
    """
    request = case.requests[0]
    if not answers and case.facts.get("upstream", {}).get("body"):
        answers = (case.answer(),)
    local = local or Local()
    log = io.BytesIO()
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(MockUpstream(*answers))
        parsed = _configure(request["body"]["model"], upstream.base_url, local, config or {}, key)
        fetcher = GuardedFetcher(parsed.run.fetch or Fetch())
        stack.push_async_callback(fetcher.aclose)
        around = Surroundings(log=log, random=lambda: 1.0)
        app = build_app(parsed, providers=_providers(parsed, local, fetcher), around=around)
        url = await stack.enter_async_context(listening(app))
        session = await stack.enter_async_context(aiohttp.ClientSession(auto_decompress=False))
        try:
            yield Stage(url, int(url.rpartition(":")[2]), app, upstream, local, log, session, request)
        finally:
            app.log.flush()
            print(log.getvalue().decode())  # shown when the test fails


def _configure(model: str, base_url: str, local: Local, config: Mapping[str, Any], key: str) -> Config:
    prefix, slash, rest = model.partition("/")
    base = prefix.partition(":")[0]
    providers: dict[str, Any]
    if base in _LOCAL:
        providers = {"local": local.section(rest if slash else base)}
    else:
        own = prefix if prefix in provider_types() else "openai-compatible"
        kind = _TYPES.get(prefix, own)
        address = base_url.removesuffix("/v1") if kind == "ollama" else base_url
        providers = {prefix: {"type": kind, "base_url": address}}
        if key:
            providers[prefix]["api_key"] = key
    document = {
        "version": 1,
        "providers": providers,
        "reliability": {"retry": {"attempts": 1}},
        "storage": {"url": "memory"},
        **config,
    }
    return parse_config(yaml.safe_dump(document), {}, provider_types=provider_types())


def _providers(config: Config, local: Local, fetcher: Fetcher) -> dict[str, Provider]:
    """The configured ones; a local one is given its model where that is scripted."""
    providers = build_providers(config, fetcher)
    for name, entry in config.providers.items():
        if isinstance(entry, LocalSection) and local.is_scripted:
            options = {"models": {model: row.model_dump(exclude_none=True) for model, row in entry.models.items()}}
            settings = ProviderSettings(name=name, type="local", options=options, fetcher=fetcher)
            providers[name] = LocalProvider(settings, load=local.load)
    return providers
