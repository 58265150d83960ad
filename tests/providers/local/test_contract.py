"""The local provider keeps the contract of a provider, over an engine that plays a script."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import pytest_asyncio

from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Request, Tool
from local_engine.errors import GenerationFailed, QueueFull
from local_engine.sampling import SamplingDefaults
from providers.base import ProviderSettings
from providers.local.chat_template import ChatTemplate
from providers.local.load_progress import LoadProgress
from providers.local.local_model import LocalModel
from providers.local.provider import LocalProvider
from providers.local.settings import LocalModelSettings, LocalSettings
from providers.local.text_formats import text_formats
from providers.testing.contract import TEXT, TOOL_CALLS, ProviderContract, Scene
from tests.providers.local.templates import CHATML_TOOLS
from tests.scripted_engine import EOS_ID, Script, ScriptedEngine, Vocabulary


class LocalStage:
    """Ids of calls count from 0 with each scene, since the contract compares two answers."""

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()
        self.engine = ScriptedEngine(Script(steps=()))
        self.provider = LocalProvider(
            ProviderSettings(name="local", type="local", options={"models": {"m": {}}}),
            load=self._load,
            new_call_id=lambda: f"call_{next(self._numbers)}",
        )
        self._numbers = count()
        self._scene = Scene.TEXT

    def _load(
        self, name: str, settings: LocalModelSettings, shared: LocalSettings, progress: LoadProgress
    ) -> LocalModel:
        template = ChatTemplate(CHATML_TOOLS)
        return LocalModel(
            name=name,
            engine=self.engine,
            tokenizer=self.vocabulary,
            template=template,
            stop_token_ids=frozenset((EOS_ID,)),
            defaults=SamplingDefaults(),
            formats=text_formats(template, self.vocabulary, settings),
        )

    def set(self, scene: Scene) -> None:
        self._scene = scene
        self._numbers = count()
        self.engine.script(self._script(scene))

    def _script(self, scene: Scene) -> Script:
        text = Script.pieces(self.vocabulary, [bytes((byte,)) for byte in TEXT.encode()])
        match scene:
            case Scene.TEXT:
                return text
            case Scene.LENGTH:
                return Script(steps=text.steps, finish="length")
            case Scene.TOOLS:
                calls = [
                    f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
                    for name, arguments in TOOL_CALLS
                ]
                return Script.pieces(self.vocabulary, list("<think>\n\n</think>\n\n" + "\n".join(calls)))
            case Scene.REFUSED:
                return Script(steps=(), error=QueueFull(limit=1, retry_after_s=1))
            case Scene.BROKEN:
                return Script(steps=text.steps[:4], error=GenerationFailed("not a number"))
            case Scene.SILENT:
                return Script(steps=text.steps, gate=asyncio.Event())
            case Scene.STALLED:
                return Script(steps=text.steps, gate=asyncio.Event(), gate_after=4)

    def request(self, *, stream: bool) -> Request:
        tools = tuple([Tool(kind="function", name=name) for name, _ in TOOL_CALLS])
        return Request(
            model="m",
            dialect="test",
            stream=stream,
            messages=(Message(role=USER, parts=(Text(text="hi"),)),),
            tools=tools if self._scene is Scene.TOOLS else None,
        )

    async def reached(self) -> None:
        await self.engine.until(lambda stats: stats.running > 0)

    async def freed(self) -> None:
        await self.engine.until(lambda stats: stats.running == 0, within_s=1)


class TestContract(ProviderContract):
    @pytest_asyncio.fixture
    async def stage(self) -> AsyncIterator[LocalStage]:
        stage = LocalStage()
        yield stage
        await stage.provider.aclose()
