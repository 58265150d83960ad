"""Models load in the background, one at a time; one that fails is named and the others serve."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from adapters.canonical.errors import NotReady
from local_engine.sampling import SamplingDefaults
from providers.base import ReadinessState
from providers.local.loading import ModelLoads
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
    assert models.readiness("a").state is ReadinessState.LOADING
    asking = asyncio.create_task(models.ready("a"))
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
        await models.ready("a")
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
        await models.ready("bad")
    assert str(error) in caught.value.message
    assert caught.value.should_retry is False
    assert models.readiness("bad").state is ReadinessState.FAILED
    assert str(error) in (models.readiness("bad").reason or "")
    assert (await models.ready("good")).name == "good"
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
        await models.ready("a")
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
    first, second = await asyncio.gather(models.ready("a"), models.ready("a"))
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
    asking = asyncio.create_task(models.ready("a"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    gate.set()
    assert (await models.ready("a")).name == "a"
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
        await models.ready("a")
    assert models.readiness("a").state is ReadinessState.FAILED
    with pytest.raises(NotReady, match="connect once"):  # at once, while it is tried again
        await models.ready("a")
    await models.begin("a")
    if tries == 2:
        assert (await models.ready("a")).name == "a"
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
    first = await models.ready("a")
    await asyncio.to_thread(engines[0].fail, "a defect")
    assert models.readiness("a").state is ReadinessState.LOADING
    assert models.loaded("a") is None
    if not again_s:
        assert await models.ready("a") is not first
        assert len(engines) == 2
    await models.aclose()  # at once, also while the load waits its time
    assert len(engines) == (1 if again_s else 2)
