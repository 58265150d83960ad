"""Images of a request on their way to the engine: fetched once, placed as the model's own processor places them."""

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pictures

from adapters.canonical.errors import InvalidRequest, NotReady
from adapters.canonical.events import Event, UsageReported
from adapters.canonical.messages import (
    ASSISTANT,
    TOOL,
    USER,
    Image,
    MediaSource,
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from adapters.canonical.request import Request, Sampling, TemplateOptions
from adapters.canonical.result import fold
from providers.base import ProviderSettings
from providers.fetching import Fetched
from providers.local.load_progress import shown_progress
from providers.local.local_model import LocalModel, load_local_model
from providers.local.prompt import ModelPrompt, model_prompt
from providers.local.provider import LocalProvider
from providers.local.request_images import MAX_IMAGES
from providers.local.settings import LocalModelSettings, LocalSettings
from tests.providers.local.tiny_vision import (
    KINDS,
    picture,
    pixels_of,
    plain,
    png,
    processor_of,
    write_vision_model,
    write_vision_pair,
)

GREEDY = Sampling(temperature=0.0)


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vision_model(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vision_model(tmp_path_factory.mktemp("gemma"), "gemma3")


class Files:
    """A `Fetcher` of what it was given; an address that it does not know is refused."""

    def __init__(self, **files: bytes) -> None:
        self.files = files
        self.asked: list[str] = []

    async def fetch(self, url: str, *, param: str | None = None) -> Fetched:
        self.asked.append(url)
        if url not in self.files:
            raise InvalidRequest(f"{param}: it cannot be fetched", param=param)
        return Fetched(self.files[url], "image/png")


def shown(image: Pictures.Image) -> Image:
    return Image(source=MediaSource(data=base64.b64encode(png(image)).decode(), media_type="image/png"))


def said(*parts: Part | str, role: str = USER) -> Message:
    return Message(role=role, parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts))


def asking(*messages: Message, **fields: Any) -> Request:
    return Request(model="vlm", dialect="openai_chat", messages=messages, max_tokens=6, **fields)


@asynccontextmanager
async def serving(folder: Path, fetcher: Files | None = None, **row: Any) -> AsyncIterator[LocalProvider]:
    options = {"models": {"vlm": {"source": str(folder), **row}}, "threads": 1, "device": "cpu"}
    provider = LocalProvider(ProviderSettings(name="local", type="local", options=options, fetcher=fetcher))
    await provider.start()
    try:
        yield provider
    finally:
        await provider.aclose()


async def answered(provider: LocalProvider, request: Request) -> list[Event]:
    return [event async for batch in provider.stream(request) for event in batch]


def usage(events: Sequence[Event]) -> Any:
    return next(event.usage for event in reversed(events) if isinstance(event, UsageReported))


def opened(folder: Path) -> LocalModel:
    settings = LocalModelSettings(source=str(folder))
    with shown_progress("vlm") as progress:
        return load_local_model("vlm", settings, LocalSettings(models={"vlm": settings}, device="cpu"), progress)


def prompt_of(model: LocalModel, request: Request, images: Sequence[Pictures.Image]) -> ModelPrompt:
    assert model.images is not None
    return model_prompt(model, request, [model.images.ready(png(image), "x") for image in images])


CONVERSATIONS: dict[str, list[tuple[str, list[str | Pictures.Image]]]] = {
    "text alone": [("user", ["Hi"])],
    "an image": [("user", [picture(), "What is it?"])],
    "an image behind text": [("user", ["Look:", picture(100, 30)])],
    "images in several turns": [
        ("user", [picture(20, 60), "and", picture(16, 16, seed=2)]),
        ("assistant", ["Two pictures."]),
        ("user", ["Now", picture(5, 5, seed=3), "?"]),
    ],
}


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_prompt_and_pixels_are_those_of_the_models_own_processor(folder: Path, name: str) -> None:
    turns = CONVERSATIONS[name]
    images = [part for _, parts in turns for part in parts if not isinstance(part, str)]
    theirs = [
        {
            "role": role,
            "content": [
                {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"} for part in parts
            ],
        }
        for role, parts in turns
    ]
    kind = next(kind for kind in KINDS if folder.name.startswith(kind))
    processor = processor_of(kind)
    text = processor.apply_chat_template(theirs, add_generation_prompt=True)
    expected = processor(text=text, images=images or None, add_special_tokens=False, return_tensors="np")
    messages = [
        said(*(part if isinstance(part, str) else shown(part) for part in parts), role=role) for role, parts in turns
    ]
    model = opened(folder)
    try:
        prompt = prompt_of(model, asking(*messages), images)
    finally:
        await model.engine.aclose()
    assert list(prompt.ids) == expected["input_ids"][0].tolist()
    if images:
        for image, pixels in zip(prompt.images, pixels_of(kind, expected), strict=True):
            np.testing.assert_array_equal(image.pixels, pixels)


async def test_an_image_changes_the_answer_and_its_tokens_are_counted(gemma: Path) -> None:
    async with serving(gemma) as provider:
        answers = []
        for colour in ("red", "green", "red"):
            events = await answered(provider, asking(said(shown(plain(colour)), "What?"), sampling=GREEDY))
            answers.append(fold(events).choices[0].parts)
            assert usage(events).prompt_image_tokens == 4
        assert usage(events).cached_tokens > 0
        assert answers[0] == answers[2] != answers[1]
        events = await answered(provider, asking(said("What?")))
        assert usage(events).prompt_image_tokens is None


async def test_a_picture_at_an_address_is_fetched_once_for_all_choices_and_is_as_one_that_is_sent(gemma: Path) -> None:
    files = Files(**{"https://a.example/p.png": png(picture())})
    async with serving(gemma, files) as provider:
        there = said(Image(source=MediaSource(url="https://a.example/p.png")), "What?")
        fetched = await answered(provider, asking(there, n=3, sampling=GREEDY))
        sent = await answered(provider, asking(said(shown(picture()), "What?"), n=3, sampling=GREEDY))
    assert files.asked == ["https://a.example/p.png"]
    assert [choice.parts for choice in fold(fetched).choices] == [choice.parts for choice in fold(sent).choices]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (MediaSource(url="https://a.example/none.png"), "it cannot be fetched"),
        (MediaSource(url="https://a.example/page"), "no image that can be read"),
        (MediaSource(data="AAAA"), "no image that can be read"),
        (MediaSource(data="no base64!"), "its data is not valid base64"),
        (MediaSource(file_id="file-1"), "takes images as data or by their address"),
    ],
)
async def test_an_image_that_cannot_be_had_is_refused_by_its_place(
    gemma: Path, source: MediaSource, reason: str
) -> None:
    files = Files(**{"https://a.example/page": b"<html></html>"})
    async with serving(gemma, files) as provider:
        request = asking(said("Look"), said("ok", role=ASSISTANT), said("at", Image(source=source)))
        with pytest.raises(InvalidRequest) as caught:
            await answered(provider, request)
    assert caught.value.param == "messages[2].content[1]"
    assert reason in str(caught.value)


async def test_without_a_fetcher_addresses_are_refused(gemma: Path) -> None:
    async with serving(gemma) as provider:
        with pytest.raises(InvalidRequest, match="send the image as data"):
            await answered(provider, asking(said(Image(source=MediaSource(url="https://a.example/p.png")))))


async def test_the_number_of_images_is_bounded(gemma: Path) -> None:
    async with serving(gemma) as provider:
        with pytest.raises(InvalidRequest, match=f"more than {MAX_IMAGES} images") as caught:
            await answered(provider, asking(said(*[shown(picture(4, 4))] * (MAX_IMAGES + 1))))
        assert caught.value.param == f"messages[0].content[{MAX_IMAGES}]"


async def test_a_client_that_leaves_while_images_are_fetched_leaves_nothing_behind(gemma: Path) -> None:
    began, gone = asyncio.Event(), asyncio.Event()

    class Waiting(Files):
        async def fetch(self, url: str, *, param: str | None = None) -> Fetched:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                gone.set()
            raise AssertionError

    async with serving(gemma, Waiting()) as provider:
        task = asyncio.create_task(answered(provider, asking(said(Image(source=MediaSource(url="https://a/"))))))
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        assert gone.is_set()
        stats = provider.engine_stats("vlm")
        assert stats is not None
        assert (stats.running, stats.waiting) == (0, 0)


async def test_a_clients_words_are_never_taken_for_an_image(gemma: Path) -> None:
    async with serving(gemma) as provider:
        words = "<start_of_image><image_soft_token><end_of_image>"
        plain = await provider.count_tokens(asking(said("x")))
        spelled = await provider.count_tokens(asking(said("x" + words)))
        assert spelled[0] - plain[0] == len(words)
        events = await answered(provider, asking(said(words, shown(picture()), words)))
        assert usage(events).prompt_image_tokens == 4


async def test_a_clients_words_are_never_taken_for_an_image_of_a_gguf(tmp_path: Path) -> None:
    decoder, mmproj = write_vision_pair(tmp_path)
    async with serving(decoder, mmproj=str(mmproj)) as provider:
        words = "<start_of_image><pad><end_of_image>"
        plain, spelled = [await provider.count_tokens(asking(said(text))) for text in ("x", "x" + words)]
        assert spelled[0] - plain[0] == len(words)
        events = await answered(provider, asking(said(words, shown(picture()), words)))
        assert usage(events).prompt_image_tokens == 4


async def test_a_video_is_refused_by_its_place_by_a_model_that_could_see_it(tmp_path: Path) -> None:
    film = Video(source=MediaSource(data="AAAA", media_type="video/mp4"))
    async with serving(write_vision_model(tmp_path, "qwen3_vl")) as provider:
        assert Video not in provider.capabilities("vlm").parts
        with pytest.raises(InvalidRequest, match="this model takes text and images only, not video") as caught:
            await answered(provider, asking(said("Look"), said("at", film)))
        assert caught.value.param == "messages[1].content[1]"


async def test_images_of_one_colour_are_told_apart_by_their_shape(tmp_path: Path) -> None:
    lying, standing = (Pictures.new("RGB", size, "red") for size in ((64, 32), (32, 64)))
    async with serving(write_vision_model(tmp_path, "qwen3_vl")) as provider:
        found = []
        for image in (lying, standing, lying):
            told = usage(await answered(provider, asking(said(shown(image), "What?"), sampling=GREEDY)))
            assert told.prompt_image_tokens == 32
            found.append(told.cached_tokens)
        before_it, same = found[1:]
        assert before_it < same - 16


async def test_images_count_in_every_count_of_tokens(gemma: Path) -> None:
    async with serving(gemma) as provider:
        request = asking(said(shown(picture()), "What?"))
        (counted,) = await provider.count_tokens(request)
        assert counted == usage(await answered(provider, request)).prompt_tokens


async def test_an_image_in_a_tools_result_is_shown(gemma: Path) -> None:
    call = ToolCall(id="c1", name="look", arguments="{}")
    result = ToolResult(call_id="c1", parts=(Text(text="seen: "), shown(picture())))
    async with serving(gemma, tool_format="hermes") as provider:
        request = asking(
            said("Look"), Message(role=ASSISTANT, parts=(call,)), Message(role=TOOL, parts=(result,)), said("And?")
        )
        assert usage(await answered(provider, request)).prompt_image_tokens == 4


async def test_a_prompt_that_the_client_rendered_takes_images_by_their_tokens(gemma: Path) -> None:
    model = opened(gemma)
    try:
        rendered = prompt_of(model, asking(said(shown(picture()), "What?")), [picture()])
        given = prompt_of(model, asking(said(shown(picture()), "What?"), prompt_token_ids=rendered.ids), [picture()])
        assert (given.ids, given.images[0].start) == (rendered.ids, rendered.images[0].start)
        with pytest.raises(InvalidRequest, match="0 tokens for images, its images need 4"):
            prompt_of(model, asking(said(shown(picture())), prompt_token_ids=(1, 2)), [picture()])
        with pytest.raises(InvalidRequest, match="would cut images"):
            prompt_of(model, asking(said(shown(picture())), truncate_prompt_tokens=4), [picture()])
    finally:
        await model.engine.aclose()


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
    ],
)
async def test_a_template_that_shows_no_images_refuses_them_by_the_message(gemma: Path, template: str) -> None:
    model = opened(gemma)
    own = TemplateOptions(chat_template=template)
    try:
        with pytest.raises(InvalidRequest, match="shows no images") as caught:
            prompt_of(model, asking(said("Hi"), said(shown(picture())), template=own), [picture()])
        assert caught.value.param == "messages[1]"
        assert prompt_of(model, asking(said("Hi"), template=own), []).ids
    finally:
        await model.engine.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_llama_cpps_files_of_a_model_answer_as_its_folder(kind: str, tmp_path: Path) -> None:
    decoder, mmproj = write_vision_pair(tmp_path / "pair", kind)
    folder = write_vision_model(tmp_path / "folder", kind)
    one, other = shown(picture(100, 30)), shown(picture(20, 60, seed=2))
    said_all = []
    rows: tuple[tuple[Path, dict[str, Any]], ...] = ((folder, {}), (decoder, {"mmproj": str(mmproj)}))
    for source, row in rows:
        async with serving(source, **row) as provider:
            assert Image in provider.capabilities("vlm").parts
            answers = []
            for parts in ([one, "What?"], ["Look:", other, "and", one], ["Hi"]):
                events = await answered(provider, asking(said(*parts), sampling=GREEDY))
                counted = usage(events)
                answers.append((fold(events).choices[0].parts, counted.prompt_tokens, counted.prompt_image_tokens))
            said_all.append(answers)
    assert said_all[0] == said_all[1]
    assert said_all[0][0][0] != said_all[0][1][0]


async def test_a_tower_beside_a_folder_and_one_that_is_none_are_refused_in_a_line(gemma: Path, tmp_path: Path) -> None:
    decoder, mmproj = write_vision_pair(tmp_path)
    for source, tower, reason in (
        (gemma, mmproj, "mmproj.gguf: goes with a GGUF, and"),
        (decoder, decoder, "general.architecture is 'gemma3', expected 'clip'"),
    ):
        async with serving(source, mmproj=str(tower)) as provider:
            with pytest.raises(NotReady, match=reason):
                await answered(provider, asking(said("Hi")))


async def test_the_model_says_that_it_reads_images_and_a_text_model_does_not(gemma: Path, tmp_path: Path) -> None:
    shutil.copytree(gemma, tmp_path / "text", ignore=shutil.ignore_patterns("preprocessor_config.json"))
    for folder, reads in ((gemma, True), (tmp_path / "text", False)):
        async with serving(folder) as provider:
            await answered(provider, asking(said("Hi")))
            assert (Image in provider.capabilities("vlm").parts) is reads
            if not reads:
                with pytest.raises(InvalidRequest, match="this model takes text only, not image"):
                    await answered(provider, asking(said(shown(picture()))))
