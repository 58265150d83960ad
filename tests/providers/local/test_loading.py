"""Models load in the background, one at a time; one that fails is named and the others serve. One that nobody asks
leaves memory, and is loaded again."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from adapters.canonical.errors import NotReady
from adapters.canonical.model_memory import ModelMemory
from local_engine.sampling import SamplingDefaults
from providers.base import Readiness, ReadinessState
from providers.local.loading import AnyModel, ModelLoads
from providers.local.local_model import LocalModel
from providers.local.model_download import FetchError
from tests.scripted_engine import ScriptedEngine, Vocabulary


def made(name: str) -> LocalModel:
    return LocalModel(
        name=name,
        engine=ScriptedEngine(),
        tokenizer=Vocabulary(),
        template=None,
        stop_token_ids=frozenset(),
        defaults=SamplingDefaults(),
    )


def loads(load: Callable[[str], LocalModel] = made, wait_s: float = 5) -> ModelLoads:
    return ModelLoads(load, wait_s=wait_s)


async def ready(models: ModelLoads, name: str, stays_s: float | None = None) -> AnyModel:
    """What a request gets that is over at once."""
    async with models.using(name, stays_s) as model:
        return model


def behind(gate: threading.Event) -> Callable[[str], LocalModel]:
    """A load that waits for the gate."""

    def load(name: str) -> LocalModel:
        assert gate.wait(5)
        return made(name)

    return load


async def test_a_request_waits_for_a_model_that_is_loading() -> None:
    gate = threading.Event()
    models = loads(behind(gate))
    models.begin("a")
    assert models.readiness("a") == Readiness(ReadinessState.LOADING, "still loading")
    asking = asyncio.create_task(ready(models, "a"))
    await asyncio.sleep(0)
    assert not asking.done()
    gate.set()
    assert (await asking).name == "a"
    assert models.readiness("a").state is ReadinessState.READY
    await models.aclose()


async def test_a_request_that_waits_too_long_is_told_to_come_back() -> None:
    gate = threading.Event()
    models = loads(behind(gate), wait_s=0.01)
    with pytest.raises(NotReady) as caught:
        await ready(models, "a")
    assert caught.value.code == "model_loading"
    assert caught.value.retry_after_s is not None
    gate.set()
    await models.aclose()


@pytest.mark.parametrize("error", [FetchError("offline: run gateway pull a"), RuntimeError("broken file")])
async def test_a_model_that_fails_is_named_and_the_others_serve(error: Exception) -> None:
    def load(name: str) -> LocalModel:
        if name == "bad":
            raise error
        return made(name)

    models = loads(load)
    for name in ("bad", "good"):
        models.begin(name)
    with pytest.raises(NotReady) as caught:
        await ready(models, "bad")
    assert str(error) in caught.value.message
    assert caught.value.should_retry is False
    assert models.readiness("bad").state is ReadinessState.FAILED
    assert str(error) in (models.readiness("bad").reason or "")
    assert (await ready(models, "good")).name == "good"
    await models.aclose()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("source '/srv/secret/tiny.gguf' is no file or folder", "source 'tiny.gguf' is no file or folder"),
        ("/srv/secret/tiny/tokenizer.json is not JSON: line 1", "tokenizer.json is not JSON: line 1"),
        ("/srv/my models/tiny/ should hold one .gguf", "tiny should hold one .gguf"),
        ("[Errno 13] Permission denied: '/srv/a b/c'", "[Errno 13] Permission denied: 'c'"),
        ("cannot keep hf:org/name in ~/cache/models: No space", "cannot keep hf:org/name in models: No space"),
        ("no route to https://a.example/x and/or hf:a/b", "no route to https://a.example/x and/or hf:a/b"),
        (r"C:\models\tiny.gguf is gone", "tiny.gguf is gone"),
    ],
)
async def test_a_client_is_told_no_path_of_this_machine_and_the_log_is(
    said: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    def load(name: str) -> LocalModel:
        raise FetchError(said)

    models = ModelLoads(load, wait_s=5, folders=("/srv/my models", "/srv"))
    with pytest.raises(NotReady) as caught:
        await ready(models, "a")
    assert caught.value.message == f"the model 'a' cannot be served: {told}"
    assert models.readiness("a").reason == told
    assert said in caplog.text
    await models.aclose()


async def test_a_model_on_demand_loads_once_with_the_first_request() -> None:
    loaded: list[str] = []

    def load(name: str) -> LocalModel:
        loaded.append(name)
        return made(name)

    models = loads(load)
    assert models.readiness("a").state is ReadinessState.READY
    assert models.loaded("a") is None
    first, second = await asyncio.gather(ready(models, "a"), ready(models, "a"))
    assert first is second is models.loaded("a")
    assert loaded == ["a"]
    await models.aclose()


async def test_closing_skips_what_has_not_begun() -> None:
    gate = threading.Event()
    loaded: list[str] = []

    def load(name: str) -> LocalModel:
        assert gate.wait(5)
        loaded.append(name)
        return made(name)

    models = loads(load)
    for name in ("a", "b"):
        models.begin(name)
    await asyncio.sleep(0)
    closing = asyncio.create_task(models.aclose())
    await asyncio.sleep(0)
    gate.set()
    await closing
    assert loaded == ["a"]


async def test_a_client_that_leaves_does_not_stop_the_load() -> None:
    gate = threading.Event()
    models = loads(behind(gate))
    asking = asyncio.create_task(ready(models, "a"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    gate.set()
    assert (await ready(models, "a")).name == "a"
    await models.aclose()


@pytest.mark.parametrize(("again_s", "tries"), [(0.0, 2), (60.0, 1)])
async def test_what_could_not_be_fetched_is_tried_again_after_a_while(again_s: float, tries: int) -> None:
    asked: list[str] = []

    def load(name: str) -> LocalModel:
        asked.append(name)
        if len(asked) == 1:
            raise FetchError("connect once to fetch it")
        return made(name)

    models = ModelLoads(load, wait_s=5, again_s=again_s)
    with pytest.raises(NotReady, match="connect once"):
        await ready(models, "a")
    assert models.readiness("a").state is ReadinessState.FAILED
    with pytest.raises(NotReady, match="connect once"):  # at once, while it is tried again
        await ready(models, "a")
    await models.begin("a")
    if tries == 2:
        assert (await ready(models, "a")).name == "a"
        assert models.readiness("a").state is ReadinessState.READY
    assert len(asked) == tries
    await models.aclose()


@pytest.mark.parametrize("again_s", [0.0, 60.0])
async def test_a_model_whose_engine_stopped_by_itself_is_loaded_again(again_s: float) -> None:
    engines: list[ScriptedEngine] = []

    def load(name: str) -> LocalModel:
        model = made(name)
        assert isinstance(model.engine, ScriptedEngine)
        engines.append(model.engine)
        return model

    models = ModelLoads(load, wait_s=5, again_s=again_s)
    first = await ready(models, "a")
    await asyncio.to_thread(engines[0].fail, "a defect")
    assert models.readiness("a").state is ReadinessState.LOADING
    assert models.loaded("a") is None
    if not again_s:
        assert await ready(models, "a") is not first
        assert len(engines) == 2
    await models.aclose()  # at once, also while the load waits its time
    assert len(engines) == (1 if again_s else 2)


class Recorded:
    """Loads that are over at once. `events` are the names that came (`+a`) and went (`-a`)."""

    def __init__(self, **settings: Any) -> None:
        self.events: list[str] = []
        self.gone = asyncio.Event()
        self.models = ModelLoads(self._load, wait_s=5, **settings)

    def _load(self, name: str) -> LocalModel:
        self.events.append(f"+{name}")
        return replace(made(name), engine=_Watched(partial(self._closed, name)), memory=ModelMemory(size=7))

    def _closed(self, name: str) -> None:
        self.events.append(f"-{name}")
        self.gone.set()

    def in_memory(self, name: str) -> bool:
        found = self.models.readiness(name)
        assert found.state is ReadinessState.READY
        return found.memory is not None


class _Watched(ScriptedEngine):
    def __init__(self, closed: Callable[[], None]) -> None:
        super().__init__()
        self._closed = closed

    async def aclose(self, *, drain: bool = False) -> None:
        self._closed()


async def test_a_model_leaves_memory_after_its_time_and_the_next_request_loads_it_again() -> None:
    told = Recorded(idle_s={"a": 0.01})
    first = await ready(told.models, "a")
    await asyncio.wait_for(told.gone.wait(), 5)
    assert not told.in_memory("a")
    assert await ready(told.models, "a") is not first
    await told.models.aclose()
    assert told.events == ["+a", "-a"] * 2


async def test_a_model_that_nobody_asked_for_leaves_as_well_and_is_then_loaded_on_demand() -> None:
    told = Recorded(idle_s={"a": 0.01})
    told.models.begin("a")
    await asyncio.wait_for(told.gone.wait(), 5)
    asking = asyncio.create_task(ready(told.models, "a"))
    await asyncio.sleep(0)
    assert told.models.readiness("a") == Readiness(ReadinessState.LOADING, "still loading", on_demand=True)
    await asking
    await told.models.aclose()


@pytest.mark.parametrize(("stays_s", "stays"), [(0, False), (0.0, False), (-1, True), (60, True), (None, True)])
async def test_a_request_says_how_long_the_model_stays(stays_s: float | None, stays: bool) -> None:
    told = Recorded()
    before = time.time()
    await ready(told.models, "a", stays_s)
    assert told.in_memory("a") is stays
    if stays and (memory := told.models.readiness("a").memory) is not None:
        assert memory.size == 7
        assert (memory.expires_at is None) is (stays_s != 60)
        assert memory.expires_at is None or before + 60 <= memory.expires_at <= time.time() + 60
    await told.models.aclose()
    assert told.events == ["+a", "-a"]


async def test_what_a_request_said_holds_until_another_says_something_or_the_model_has_left() -> None:
    told = Recorded(idle_s={"a": 60})
    await ready(told.models, "a", -1)
    await ready(told.models, "a")
    assert told.models.readiness("a").memory == ModelMemory(size=7)
    await told.models.unload("a")
    await ready(told.models, "a")
    memory = told.models.readiness("a").memory
    assert memory is not None
    assert memory.expires_at is not None
    await told.models.aclose()


async def test_a_model_stays_as_long_as_one_of_its_requests_lasts() -> None:
    told = Recorded(idle_s={"a": 0.01})
    async with told.models.using("a") as model:
        async with told.models.using("a", 0) as same:
            assert same is model
        await told.models.unload("a")
        for _ in range(3):  # longer than its time
            await asyncio.sleep(0.01)
        assert told.in_memory("a")
    assert not told.in_memory("a")
    await told.models.aclose()
    assert told.events == ["+a", "-a"]


async def test_a_model_that_is_let_go_while_it_is_loading_goes_when_those_who_wait_are_served() -> None:
    gate = threading.Event()
    models = loads(behind(gate))
    asking = asyncio.create_task(ready(models, "a"))
    await asyncio.sleep(0)
    await models.unload("a")
    gate.set()
    assert (await asking).name == "a"
    assert models.loaded("a") is None
    await models.aclose()


async def test_to_let_go_what_is_not_there_changes_nothing() -> None:
    told = Recorded()
    await told.models.unload("a")
    await ready(told.models, "a")
    assert told.in_memory("a")
    await told.models.aclose()


async def test_what_was_there_before_is_tried_again_and_keeps_nothing_of_how_long_it_was_to_stay() -> None:
    tries = iter([None, MemoryError("no room"), None])

    def load(name: str) -> LocalModel:
        if (error := next(tries)) is not None:
            raise error
        return made(name)

    models = ModelLoads(load, wait_s=5, again_s=0)
    await ready(models, "a", 0)
    with pytest.raises(NotReady, match="no room"):
        await ready(models, "a", 0)
    await models.begin("a")
    await ready(models, "a")
    assert models.loaded("a") is not None
    await models.aclose()


async def test_the_model_that_was_asked_for_longest_ago_makes_room_for_another() -> None:
    told = Recorded(most=2)
    for name in ("a", "b", "a", "c"):
        await ready(told.models, name)
    assert told.events == ["+a", "+b", "-b", "+c"]  # gone before the other comes
    assert [told.in_memory(name) for name in "abc"] == [True, False, True]
    await told.models.aclose()


async def test_a_model_waits_for_room_as_long_as_the_others_have_requests() -> None:
    told = Recorded(most=1)
    async with told.models.using("a"):
        asking = asyncio.create_task(ready(told.models, "b"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert told.events == ["+a"]
    assert (await asking).name == "b"
    assert told.events == ["+a", "-a", "+b"]
    async with told.models.using("b"):
        told.models.begin("a")
        await asyncio.sleep(0)
        await told.models.aclose()  # which waits for nobody's end
    assert told.events == ["+a", "-a", "+b", "-b"]


async def test_a_model_that_fails_under_its_requests_holds_up_nobody_who_waits_for_room() -> None:
    engines: dict[str, ScriptedEngine] = {}

    def load(name: str) -> LocalModel:
        model = made(name)
        assert isinstance(model.engine, ScriptedEngine)
        engines[name] = model.engine
        return model

    models = ModelLoads(load, wait_s=5, most=1)
    async with models.using("a"):
        asking = asyncio.create_task(ready(models, "b"))
        await asyncio.sleep(0)
        await asyncio.to_thread(engines["a"].fail, "a defect")
        await asyncio.sleep(0)
    assert (await asking).name == "b"
    await models.aclose()
