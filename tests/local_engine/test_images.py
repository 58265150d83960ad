"""Images on their way through the engine: read once, checked at the door, and beside the steps of others."""

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from local_engine.async_engine import AsyncEngine
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import EngineClosed, GenerationFailed, InvalidInput, QueueFull
from local_engine.generation import GenerationRequest, ImageInput
from local_engine.images import ImageReader
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import small_config
from tests.local_engine.models.tiny_image_oracles import IMAGE, SIZE, TOKENS, ImagePrompt, image_oracle, pixels_of

GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
ASKED = ImagePrompt([3, 101, pixels_of(1), 102, 9]).request(GREEDY)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("model")
    return load_model(image_oracle("Gemma3ForConditionalGeneration").write(folder), EngineConfig())


def image(seed: int, start: int = 0) -> ImageInput:
    return ImageInput(start, pixels_of(seed), bytes([seed]) * 32)


class Tower:
    """Says which images it was shown; waits for `go_on` where there is one."""

    def __init__(self, go_on: threading.Event | None = None, hidden_size: int = 32) -> None:
        self.shown: list[float] = []
        self.began = threading.Event()
        self._go_on = go_on
        self._hidden_size = hidden_size

    def __call__(self, pixels: Tensor) -> Tensor:
        self.shown.append(float(pixels[0, 0, 0]))
        self.began.set()
        assert self._go_on is None or self._go_on.wait(20)
        return torch.full((TOKENS, self._hidden_size), float(pixels[0, 0, 0]))


def test_an_image_that_is_asked_about_again_is_not_read_again() -> None:
    tower = Tower()
    reader = ImageReader(tower, None)
    first, again = reader.placed([image(1, 3), image(2, 9)]), reader.placed([image(1, 5)])
    assert len(tower.shown) == 2
    assert [(one.start, one.stop) for one in (*first, *again)] == [(3, 7), (9, 13), (5, 9)]
    assert again[0].rows is first[0].rows


def test_kept_images_are_bounded_in_bytes_and_the_longest_unused_goes_first() -> None:
    tower = Tower()
    reader = ImageReader(tower, None, kept_bytes=2 * TOKENS * 32 * 4)
    for seed in (1, 2, 1, 3, 1, 2):
        reader.placed([image(seed)])
    assert tower.shown == [float(pixels_of(seed)[0, 0, 0]) for seed in (1, 2, 3, 2)]


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        ((replace(ASKED.images[0], pixels=np.zeros((3, SIZE, SIZE + 1), np.float32)),), "has shape"),
        ((replace(ASKED.images[0], pixels=np.zeros((4, SIZE, SIZE), np.float32)),), "has shape"),
        ((replace(ASKED.images[0], start=1),), "has no 4 tokens of its own at 1"),
        ((replace(ASKED.images[0], start=5),), "has no 4 tokens of its own at 5"),
        ((replace(ASKED.images[0], start=-3),), "has no 4 tokens of its own at -3"),
        ((ASKED.images[0], ASKED.images[0]), "item 1 has no 4 tokens of its own at 2"),
    ],
)
def test_images_that_do_not_fit_their_tokens_are_refused(
    loaded: LoadedModel, images: tuple[ImageInput, ...], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Engine(loaded, small_config()).check(replace(ASKED, images=images))


def test_a_model_that_reads_no_images_refuses_them(tiny_model: LoadedModel) -> None:
    asked = GenerationRequest("r", (9, *[IMAGE] * TOKENS), GREEDY, images=(image(1, 1),))
    with pytest.raises(InvalidInput, match="images: the model reads none"):
        Engine(tiny_model, small_config()).check(asked)


async def answer(engine: AsyncEngine, request: GenerationRequest) -> list[int]:
    return [token.token_id async for output in engine.generate(request) for token in output.tokens]


async def test_while_an_image_is_read_others_are_answered(loaded: LoadedModel) -> None:
    go_on = threading.Event()
    tower = Tower(go_on)
    engine = AsyncEngine(replace(loaded, encode_image=tower), small_config())
    asking = asyncio.create_task(answer(engine, ASKED))
    await asyncio.to_thread(tower.began.wait)
    other = await answer(engine, ImagePrompt([3, 17, 99]).request(GREEDY))
    assert len(other) == 4
    assert not asking.done()
    go_on.set()
    assert len(await asking) == 4
    await engine.aclose()


async def test_requests_whose_images_are_still_read_count_for_the_queue_and_leave_it_when_given_up(
    loaded: LoadedModel,
) -> None:
    go_on = threading.Event()
    tower = Tower(go_on)
    engine = AsyncEngine(replace(loaded, encode_image=tower), small_config(max_sequences=1, queue=1))
    asking = [asyncio.create_task(answer(engine, ASKED)) for _ in range(2)]
    await asyncio.to_thread(tower.began.wait)
    with pytest.raises(QueueFull):
        await answer(engine, ASKED)
    asking[1].cancel()
    await asyncio.wait(asking[1:])
    assert len(await answer(engine, ImagePrompt([3]).request(GREEDY))) == 4
    go_on.set()
    assert len(await asking[0]) == 4
    await engine.aclose()


async def test_an_engine_that_closes_while_an_image_is_read_says_so(loaded: LoadedModel) -> None:
    go_on = threading.Event()
    tower = Tower(go_on)
    engine = AsyncEngine(replace(loaded, encode_image=tower), small_config())
    asking = [asyncio.create_task(answer(engine, ASKED)) for _ in range(2)]
    await asyncio.to_thread(tower.began.wait)
    await engine.aclose()
    go_on.set()
    for task in asking:
        with pytest.raises(EngineClosed):
            await task
    assert len(tower.shown) == 1


async def test_a_tower_that_fails_fails_its_own_request(loaded: LoadedModel) -> None:
    def broken(pixels: Tensor) -> Tensor:
        raise RuntimeError("no memory")

    engine = AsyncEngine(replace(loaded, encode_image=broken), small_config())
    with pytest.raises(GenerationFailed, match="no memory"):
        await answer(engine, ASKED)
    assert len(await answer(engine, ImagePrompt([3, 17]).request(GREEDY))) == 4
    await engine.aclose()
