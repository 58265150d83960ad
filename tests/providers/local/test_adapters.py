"""LoRA adapters of a local model: from run.yaml, and loaded and unloaded while it serves."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.canonical.errors import GatewayError, InvalidRequest, ModelNotFound, NotReady
from adapters.canonical.events import Event, TextDelta, UsageReported
from adapters.canonical.request import LoraAdapter, Request, Sampling
from providers.abilities import AdapterFolder, AdapterName
from providers.base import ProviderSettings, ReadinessState
from providers.local.provider import LocalProvider
from providers.local.settings import read_settings
from tests.cases.tiny_model import write_adapter, write_model

PROMPT = "x" * 64


def settings(models: dict[str, Any]) -> ProviderSettings:
    options = {"models": models, "kv_cache": {"memory": 2**20}, "device": "cpu", "threads": 1}
    return ProviderSettings(name="local", type="local", options=options)


@asynccontextmanager
async def serving(folder: Path, *adapters: str) -> AsyncIterator[LocalProvider]:
    """The model `m` with adapters from run.yaml, each a folder beside it."""
    source = str(write_model(folder / "model"))
    paths = {name: str(folder / name) for name in adapters}
    provider = LocalProvider(settings({"m": {"source": source, "adapters": paths}}))
    await provider.start()
    try:
        yield provider
    finally:
        await provider.aclose()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, name in enumerate(("a", "b"), start=1):
        write_adapter(tmp_path / name, seed=seed)
    return tmp_path


def asking(adapter: str | None, *, max_tokens: int = 8) -> Request:
    return Request(
        model="m",
        dialect="openai.completions",
        prompts=(PROMPT,),
        max_tokens=max_tokens,
        sampling=Sampling(temperature=0.0, ignore_eos=True),
        logprobs=0,
        adapter=None if adapter is None else LoraAdapter(name=adapter),
    )


async def events_of(provider: LocalProvider, request: Request) -> list[Event]:
    async with aclosing(provider.stream(request)) as batches:
        return [event async for batch in batches for event in batch]


async def scores_of(provider: LocalProvider, adapter: str | None) -> list[float | None]:
    """The log-probabilities of the answer's tokens."""
    events = await events_of(provider, asking(adapter))
    return [token.logprob for event in events if isinstance(event, TextDelta) for token in event.logprobs or ()]


async def cached_of(provider: LocalProvider, adapter: str | None) -> int | None:
    events = await events_of(provider, asking(adapter))
    return [event.usage for event in events if isinstance(event, UsageReported)][-1].cached_tokens


async def listed(provider: LocalProvider) -> list[str]:
    return [entry.id for entry in await provider.models()]


async def refused(provider: LocalProvider, adapter: str) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await events_of(provider, asking(adapter))
    return caught.value


async def test_adapters_of_run_yaml_answer_beside_the_model(folder: Path) -> None:
    async with serving(folder, "a", "b") as provider:
        answers = [await scores_of(provider, name) for name in (None, "a", "b")]
        assert len({str(answer) for answer in answers}) == 3
        assert await listed(provider) == ["m", "m:a", "m:b"]


@pytest.mark.parametrize("name", ["", "A", "a ", "m"])
async def test_a_name_that_is_not_loaded_is_a_model_that_does_not_exist(folder: Path, name: str) -> None:
    async with serving(folder, "a") as provider:
        error = await refused(provider, name)
        assert isinstance(error, ModelNotFound)
        assert f"'m:{name}'" in str(error)


async def test_an_adapter_comes_and_goes_while_the_model_serves(folder: Path) -> None:
    async with serving(folder) as provider:
        assert isinstance(await refused(provider, "a"), ModelNotFound)
        await provider.load_adapter(AdapterFolder("m", "a", str(folder / "a")))
        assert await listed(provider) == ["m", "m:a"]
        assert await scores_of(provider, "a") != await scores_of(provider, None)
        await provider.unload_adapter(AdapterName("m", "a"))
        assert await listed(provider) == ["m"]
        assert isinstance(await refused(provider, "a"), ModelNotFound)


async def test_other_weights_under_the_same_name_find_nothing_in_the_prefix_cache(folder: Path) -> None:
    async with serving(folder, "b") as provider:
        expected = await scores_of(provider, "b")
    async with serving(folder, "a") as provider:
        first = await scores_of(provider, "a")
        assert await cached_of(provider, "a") == 48
        await provider.unload_adapter(AdapterName("m", "a"))
        await provider.load_adapter(AdapterFolder("m", "a", str(folder / "b")))
        assert await cached_of(provider, "a") == 0
        assert await scores_of(provider, "a") == pytest.approx(expected, abs=1e-5)
        assert expected != first


async def test_an_answer_that_has_begun_ends_with_the_adapter_it_began_with(folder: Path) -> None:
    async with serving(folder, "a") as provider:
        expected = await scores_of(provider, "a")
        async with aclosing(provider.stream(asking("a"))) as batches:
            events = list(await anext(batches))
            await provider.unload_adapter(AdapterName("m", "a"))
            assert isinstance(await refused(provider, "a"), ModelNotFound)
            events += [event async for batch in batches for event in batch]
        scores = [token.logprob for event in events if isinstance(event, TextDelta) for token in event.logprobs or ()]
        assert scores == pytest.approx(expected, abs=1e-5)


async def test_what_cannot_be_loaded_or_unloaded_is_told_and_changes_nothing(folder: Path) -> None:
    async with serving(folder, "a") as provider:
        for name, where in (("a", "b"), ("x:y", "b"), ("new", "nowhere")):
            with pytest.raises(InvalidRequest) as caught:
                await provider.load_adapter(AdapterFolder("m", name, str(folder / where)))
            assert caught.value.param == "adapter"
        for model, name in (("m", "b"), ("other", "a")):
            with pytest.raises(ModelNotFound):
                await provider.unload_adapter(AdapterName(model, name))
        assert await listed(provider) == ["m", "m:a"]


async def test_a_model_whose_adapter_cannot_be_read_is_not_ready_and_says_why(folder: Path) -> None:
    (folder / "a" / "adapter_config.json").unlink()
    async with serving(folder, "a") as provider:
        with pytest.raises(NotReady) as caught:
            await events_of(provider, asking(None))
        assert "a: adapter_config.json: No such file" in caught.value.message
        assert provider.readiness("m").state is ReadinessState.FAILED


@pytest.mark.parametrize("name", ["", "x:y", "x/y", "taken"])
def test_a_name_that_could_be_a_models_is_refused_in_run_yaml(name: str) -> None:
    with pytest.raises(ValueError, match=r"providers\.local\.models\.m\.adapters: "):
        read_settings(settings({"m": {"adapters": {name: "./a"}}, "m:taken": {}}))


async def test_an_adapter_that_was_loaded_while_it_served_comes_back_with_its_model(folder: Path) -> None:
    async with serving(folder, "a") as provider:
        await provider.load_adapter(AdapterFolder("m", "b", str(folder / "b")))
        before = await events_of(provider, asking("b"))
        await provider.unload_model("m")
        assert await listed(provider) == ["m", "m:a", "m:b"]
        assert await events_of(provider, asking("b")) == before
        await provider.unload_adapter(AdapterName("m", "a"))
        await provider.unload_model("m")
        assert isinstance(await refused(provider, "a"), ModelNotFound)
