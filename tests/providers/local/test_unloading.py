"""Real models that leave memory: what they took is free at once, and the next request finds them as they were."""

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.json import decode
from msgspec.structs import replace

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.events import Event, ProviderReported
from adapters.canonical.request import Request, Sampling
from adapters.ollama.vocabulary import CHAT
from local_engine.loading.weights import Weights
from providers.abilities import ModelLoad
from providers.base import ProviderSettings, ReadinessState
from providers.local.provider import LocalProvider
from providers.local.settings import read_settings
from tests.cases.tiny_model import write_model
from tests.providers.local.tiny_encoder import write_encoder

pytestmark = pytest.mark.timeout(60)
POOL = 2**20
ASKED = Request(
    model="m", dialect=CHAT, prompts=("The quick brown fox",), sampling=Sampling(temperature=0), max_tokens=8
)


@asynccontextmanager
async def provider(source: Path, **model: Any) -> AsyncIterator[LocalProvider]:
    models = {"m": {"source": str(source), "load": "on_demand", **model}}
    options = {"models": models, "device": "cpu", "kv_cache": {"memory": POOL}}
    found = LocalProvider(ProviderSettings(name="local", type="local", options=options))
    await found.start()
    try:
        yield found
    finally:
        await found.aclose()


async def answer(found: LocalProvider, asked: Request = ASKED) -> list[Event]:
    return [event for batch in [batch async for batch in found.stream(asked)] for event in batch]


async def embedding(found: LocalProvider) -> bytes:
    asked = EmbeddingRequest(model="m", dialect="openai.embeddings", inputs=("red car",))
    (vector,) = (await found.embed(asked)).vectors
    return vector


def held() -> tuple[int, int]:
    """Bytes of all tensors of this process, and how many files of weights it remembers."""
    objects = gc.get_objects()
    tensors = sum(one.nbytes for one in objects if isinstance(one, torch.Tensor))
    return tensors, sum(isinstance(one, Weights) for one in objects)


def llama(folder: Path) -> Path:
    return write_model(folder / "llama")


def encoder(folder: Path) -> Path:
    write_encoder(folder / "encoder")
    return folder / "encoder"


@pytest.mark.parametrize(
    ("write", "model"),
    [
        (llama, {}),
        (llama, {"dtype": "float32"}),
        (llama, {"speculative": {"kind": "draft", "model": "itself"}}),
        (encoder, {}),
    ],
)
async def test_nothing_of_a_model_that_left_waits_for_the_collector(
    tmp_path: Path, write: Callable[[Path], Path], model: dict[str, Any]
) -> None:
    source = write(tmp_path)
    if "speculative" in model:
        model = {"speculative": {"kind": "draft", "model": str(source)}}
    ask = embedding if write is encoder else answer
    async with provider(source, **model) as found:
        gc.collect()
        before = held()
        gc.disable()
        try:
            await ask(found)
            assert held() > before
            await found.unload_model("m")
            assert held() == before
        finally:
            gc.enable()
        await ask(found)


async def test_a_model_is_listed_and_ready_as_before_while_it_is_not_in_memory(tmp_path: Path) -> None:
    async with provider(llama(tmp_path)) as found:
        await found.load_model(ModelLoad("m"))
        listed, capabilities = await found.models(), found.capabilities("m")
        memory = found.readiness("m").memory
        assert memory is not None
        weights = (tmp_path / "llama" / "model.safetensors").stat().st_size
        assert POOL + 0.9 * weights < memory.size < POOL + weights
        assert (memory.vram, memory.expires_at) == (0, None)
        assert len(found.measures())
        await found.unload_model("m")
        assert (await found.models(), found.capabilities("m")) == (listed, capabilities)
        readiness = found.readiness("m")
        assert (readiness.state, readiness.memory) == (ReadinessState.READY, None)
        assert not found.measures()


async def test_the_time_to_load_is_told_to_clients_that_hear_of_it(tmp_path: Path) -> None:
    async with provider(llama(tmp_path)) as found:
        told = []
        for _ in range(2):
            (reported,) = [event for event in await answer(found) if isinstance(event, ProviderReported)]
            told.append({name: decode(raw) for name, raw in reported.fields.items()})
        first, second = told
        assert first["load_duration"] > 10 * second["load_duration"]
        assert first["total_duration"] > first["load_duration"]
        for one in told:
            parts = one["load_duration"] + one["prompt_eval_duration"] + one["eval_duration"]
            assert parts <= one["total_duration"]


async def test_a_request_may_be_the_last_of_its_model(tmp_path: Path) -> None:
    async with provider(llama(tmp_path)) as found:
        await answer(found, replace(ASKED, keep_alive_s=0))
        assert found.readiness("m").memory is None
        await answer(found)
        assert found.readiness("m").memory is not None


def test_a_model_may_stay_longer_than_the_others_or_for_ever() -> None:
    models = {"as-all": {}, "longer": {"idle_unload_s": 60}, "ever": {"idle_unload_s": "never"}}
    options = {"models": models, "idle_unload_s": 5, "max_loaded": 2}
    settings = read_settings(ProviderSettings(name="local", type="local", options=options))
    assert [settings.idle_unload_s_of(name) for name in models] == [5, 60, None]
    assert settings.most_loaded == 2
