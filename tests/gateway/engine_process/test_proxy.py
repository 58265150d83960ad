"""A provider in another process is the provider: same events, same errors; its end is told, and mended."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.canonical.citation import Citation, Place
from adapters.canonical.errors import ContextOverflow, UpstreamRateLimited, UpstreamUnreachable
from adapters.canonical.messages import Image, MediaSource, Message, Text, ToolCall
from adapters.canonical.model_memory import ModelMemory
from adapters.canonical.request import Request, Sampling, Tool
from gateway.engine_process.host import Host
from gateway.engine_process.messages import pack, unpack
from gateway.engine_process.proxy import EngineProxy
from providers.abilities import ModelHost, ModelLoad
from providers.base import Batch, ModelEntry, Readiness, ReadinessState
from providers.testing.scripted import ScriptedProvider, Step
from providers.trace_context import PHASES
from tests.gateway.server.running import HELLO, text, until

REQUEST = Request(
    model="m",
    dialect="chat",
    messages=(
        Message(
            role="user",
            parts=(Text(text="hi"), Image(source=MediaSource(url="data:,x")), ToolCall(id="a", name="f")),
        ),
    ),
    tools=(Tool(kind="function", name="f", parameters=b'{"$": 1}'),),
    sampling=Sampling(logit_bias={7: 0.5}, stop=("x",)),
    extras={"$": b"1"},
)


CITED = Text(text="hi", citations=(Citation(url="https://a", place=Place("page", 1, 2)),))


@pytest.mark.parametrize(
    "value", [REQUEST, HELLO, CITED, {1: (2, (3,)), "a": [1]}, frozenset((Text, Image)), None, ("x", b"\x00", 1.5)]
)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    assert unpack(pack(value)) == value


def test_an_error_comes_back_as_what_it_was() -> None:
    error = unpack(pack(UpstreamRateLimited("slow", code="c", retry_after_s=3, upstream_status=429)))
    assert isinstance(error, UpstreamRateLimited)
    assert (error.message, error.code, error.retry_after_s, error.upstream_status) == ("slow", "c", 3, 429)


def test_a_type_that_is_not_listed_cannot_be_made() -> None:
    with pytest.raises(KeyError):
        unpack(pack(Request).replace(b"\x07Request"[1:], b"Process"))


@asynccontextmanager
async def apart(provider: ScriptedProvider, path: Path) -> AsyncIterator[tuple[EngineProxy, Host]]:
    faults: list[BaseException] = []
    host = Host(provider, faults.append)
    await host.start(path)
    proxy = EngineProxy("local", path, first_token_s=5)
    await proxy.start()
    try:
        yield proxy, host
    finally:
        await proxy.aclose()
        await host.aclose()
        assert faults == []


async def answer(proxy: EngineProxy) -> list[Batch]:
    async with aclosing(proxy.stream(REQUEST)) as batches:
        return [batch async for batch in batches]


async def test_the_stream_and_the_request_are_the_same(tmp_path: Path) -> None:
    provider = ScriptedProvider("local", HELLO, models=[ModelEntry(id="m", context=7)])
    async with apart(provider, tmp_path / "s") as (proxy, _):
        assert await answer(proxy) == HELLO
        assert provider.requests == [REQUEST]
        assert list(await proxy.models()) == [ModelEntry(id="m", context=7)]
        assert proxy.capabilities("m") == provider.capabilities("m")


class Phased(ScriptedProvider):
    """Tells one phase before its answer, where somebody wants to know."""

    async def stream(self, request: Request) -> AsyncGenerator[Batch, None]:
        record = PHASES.get()
        if record is not None:
            record("queue", 1.0, 2.5)
        async with aclosing(super().stream(request)) as batches:
            async for batch in batches:
                yield batch


@pytest.mark.parametrize("is_traced", [True, False])
async def test_the_phases_of_a_traced_request_are_told_here(tmp_path: Path, is_traced: bool) -> None:
    told: list[tuple[str, float, float]] = []
    async with apart(Phased("local", HELLO), tmp_path / "s") as (proxy, _):
        PHASES.set((lambda *phase: told.append(phase)) if is_traced else None)
        assert await answer(proxy) == HELLO
    assert told == ([("queue", 1.0, 2.5)] if is_traced else [])


class Loads(ScriptedProvider):
    """A provider whose model comes and goes."""

    memory: ModelMemory | None = None

    def readiness(self, model: str) -> Readiness:
        return Readiness(ReadinessState.READY, memory=self.memory)

    async def load_model(self, asked: ModelLoad) -> None:
        assert asked == ModelLoad("m", 300)
        self.memory = ModelMemory(size=9, vram=4, expires_at=1.5)

    async def unload_model(self, model: str) -> None:
        assert model == "m"
        self.memory = None


async def test_a_model_that_was_loaded_or_let_go_is_known_to_be_so_at_once(tmp_path: Path) -> None:
    async with apart(Loads("local", models=[ModelEntry(id="m")]), tmp_path / "s") as (proxy, _):
        assert isinstance(proxy, ModelHost)
        await proxy.load_model(ModelLoad("m", 300))
        assert proxy.readiness("m").memory == ModelMemory(size=9, vram=4, expires_at=1.5)
        await proxy.unload_model("m")
        assert proxy.readiness("m") == Readiness(ReadinessState.READY)


async def test_an_error_is_raised_as_it_was(tmp_path: Path) -> None:
    provider = ScriptedProvider("local", [ContextOverflow("too long", param="messages")])
    async with apart(provider, tmp_path / "s") as (proxy, _):
        with pytest.raises(ContextOverflow) as raised:
            await answer(proxy)
        assert raised.value.param == "messages"


async def test_a_slow_reader_holds_its_own_stream_and_no_other(tmp_path: Path) -> None:
    made = 0

    def endless(request: Request) -> Iterator[Step]:
        nonlocal made
        while request.request_id == "slow":
            made += 1
            yield text("word" * 100)
        yield from HELLO

    provider = ScriptedProvider("local", endless)
    async with (
        apart(provider, tmp_path / "s") as (proxy, _),
        aclosing(proxy.stream(replace(REQUEST, request_id="slow"))) as batches,
    ):
        assert await anext(batches) == text("word" * 100)
        before = -1
        async with asyncio.timeout(10):
            while before != made:  # until it is held
                before = made
                await asyncio.sleep(0.1)
        assert made < 5000
        async with asyncio.timeout(5):
            assert await answer(proxy) == HELLO
        async with asyncio.timeout(10):
            while made == before:  # what is read makes room for more
                await anext(batches)


async def test_who_leaves_a_stream_stops_it_there(tmp_path: Path) -> None:
    provider = ScriptedProvider("local", [text("a"), asyncio.Event(), text("b")])
    async with apart(provider, tmp_path / "s") as (proxy, _):
        async with aclosing(proxy.stream(REQUEST)) as batches:
            assert await anext(batches) == text("a")
            assert provider.open_streams == 1
        await until(lambda: provider.open_streams == 0)


async def test_a_host_that_stops_while_it_is_asked_reports_no_fault(tmp_path: Path) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    provider = ScriptedProvider("local", HELLO, models=[ModelEntry(id="m", context=7)])
    async with apart(provider, tmp_path / "s") as (proxy, host):
        await answer(proxy)
        await host.aclose()
    assert reported == []


async def test_the_end_of_the_process_fails_what_ran_and_the_next_one_serves(tmp_path: Path) -> None:
    stuck = ScriptedProvider("local", [text("a"), asyncio.Event()])
    async with apart(stuck, tmp_path / "s") as (proxy, host):
        async with aclosing(proxy.stream(REQUEST)) as batches:
            await anext(batches)
            await host.aclose()
            with pytest.raises(UpstreamUnreachable):
                async with asyncio.timeout(5):
                    await anext(batches)
        (tmp_path / "s").unlink(missing_ok=True)
        next_host = Host(ScriptedProvider("local", HELLO), lambda error: None)
        await next_host.start(tmp_path / "s")
        assert await answer(proxy) == HELLO
        await next_host.aclose()
