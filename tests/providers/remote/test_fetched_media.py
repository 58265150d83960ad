"""Files by their addresses reach upstreams that take only bytes, fetched once and by the guarded fetcher alone."""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import USER, Document, File, Image, MediaSource, Message, Part, ToolResult
from adapters.canonical.request import Request
from adapters.gemini.vocabulary import GEMINI
from providers.base import Provider
from providers.fetching import Fetched
from providers.remote.fetched_media import MAX_FILES, FetchedMedia
from tests.mock_upstream import Answer
from tests.providers.remote import gemini_wire, ollama_wire, openai_wire, test_bedrock
from tests.providers.remote.anthropic_wire import request

pytestmark = pytest.mark.timeout(20)
PNG = b"\x89PNG\r\n\x1a\nrest"
PDF = b"%PDF-1.7 rest"
CAT, PAPER = "https://files.example/cat.png", "https://files.example/a%20paper.pdf?v=1"
GEMINI_OK = {"candidates": [{"content": {"parts": [{"text": "ok"}]}, "finishReason": "STOP"}]}
CHAT_OK = {"id": "x", "choices": [{"index": 0, "message": {"content": "ok"}, "finish_reason": "stop"}]}
CONNECTED: dict[str, tuple[Callable[..., Any], Answer]] = {
    "ollama": (ollama_wire.connected, ollama_wire.whole("ok")),
    "gemini": (gemini_wire.connected, Answer.json(json.dumps(GEMINI_OK).encode())),
    "bedrock": (test_bedrock.connected, test_bedrock.whole({"text": "ok"})),
    "chat": (openai_wire.connected, Answer.json(json.dumps(CHAT_OK).encode())),
}


class Files:
    """A `Fetcher` of what it was given; an address that it does not know is refused."""

    def __init__(self, media_type: str = "application/octet-stream", more: Mapping[str, bytes] | None = None) -> None:
        self._files = {CAT: PNG, PAPER: PDF, **(more or {})}
        self._media_type = media_type
        self.asked: list[str] = []

    async def fetch(self, url: str, *, param: str | None = None) -> Fetched:
        self.asked.append(url)
        await asyncio.sleep(0)
        if url not in self._files:
            raise InvalidRequest(f"{param}: it cannot be fetched", param=param)
        return Fetched(self._files[url], self._media_type)


def at(url: str) -> Image:
    return Image(source=MediaSource(url=url))


def asked(*parts: Part, **fields: Any) -> Request:
    return request(stream=False, messages=(Message(role=USER, parts=parts),), **fields)


async def collect(provider: Provider, wanted: Request) -> None:
    async with aclosing(provider.stream(wanted)) as batches:
        assert [batch async for batch in batches]


async def sent(kind: str, files: Files | None, wanted: Request) -> Any:
    """The body that the upstream gets."""
    connected, answer = CONNECTED[kind]
    async with connected(answer, fetcher=files) as (upstream, provider):
        await collect(provider, wanted)
    return json.loads(upstream.requests[-1].body)


async def test_an_image_by_its_address_is_sent_as_bytes() -> None:
    data = base64.b64encode(PNG).decode()
    body = await sent("ollama", Files(), asked(at(CAT)))
    assert body["messages"][0]["images"] == [data]
    body = await sent("gemini", Files(), asked(at(CAT)))
    assert body["contents"][0]["parts"] == [{"inlineData": {"mimeType": "image/png", "data": data}}]
    body = await sent("bedrock", Files(), asked(at(CAT)))
    assert body["messages"][0]["content"] == [{"image": {"format": "png", "source": {"bytes": data}}}]


@pytest.mark.parametrize("part", [File(source=MediaSource(url=PAPER)), Document(source=MediaSource(url=PAPER))])
async def test_a_document_by_its_address_is_sent_as_bytes(part: Part) -> None:
    data = base64.b64encode(PDF).decode()
    name = "a paper pdf" if isinstance(part, File) else "document"
    body = await sent("bedrock", Files(), asked(part))
    document = {"format": "pdf", "name": name, "source": {"bytes": data}}
    assert {"document": document} in body["messages"][0]["content"]
    body = await sent("gemini", Files(), asked(part))
    assert body["contents"][0]["parts"] == [{"inlineData": {"mimeType": "application/pdf", "data": data}}]
    body = await sent("chat", Files(), asked(part, dialect="anthropic.messages"))
    assert body["messages"][0]["content"][0]["file"]["file_data"] == f"data:application/pdf;base64,{data}"


async def test_a_picture_in_the_result_of_a_call_is_fetched_too() -> None:
    result = ToolResult(call_id="c1", parts=(at(CAT),))
    wanted = request(stream=False, messages=(Message(role="tool", parts=(result,)),))
    body = await sent("ollama", Files(), wanted)
    assert body["messages"][0]["images"] == [base64.b64encode(PNG).decode()]


async def test_what_is_fetched_once_serves_every_choice_and_every_try() -> None:
    files = Files()
    connected, answer = CONNECTED["ollama"]
    wanted = asked(at(CAT), at(CAT), n=3)
    async with connected(answer, fetcher=files) as (upstream, provider):
        await collect(provider, wanted)
        await collect(provider, replace(wanted, model="another"))
    assert files.asked == [CAT]
    assert len(upstream.requests) == 6
    assert wanted.messages == asked(at(CAT), at(CAT)).messages


async def test_addresses_that_the_upstream_reads_itself_are_left_alone() -> None:
    files = Files()
    for url in ("gs://bucket/a.png", "https://generativelanguage.googleapis.com/v1beta/files/x", "https://youtu.be/x"):
        body = await sent("gemini", files, asked(at(url)))
        assert body["contents"][0]["parts"][0]["fileData"]["fileUri"] == url
    own = await sent("gemini", files, asked(at(CAT), dialect=GEMINI))
    assert own["contents"][0]["parts"][0]["fileData"]["fileUri"] == CAT
    body = await sent("bedrock", files, asked(at(f"data:image/png;base64,{base64.b64encode(PNG).decode()}")))
    assert "bytes" in body["messages"][0]["content"][0]["image"]["source"]
    body = await sent("chat", files, asked(at(CAT)))
    assert body["messages"][0]["content"][0]["image_url"]["url"] == CAT
    assert files.asked == []


@pytest.mark.parametrize("kind", ["ollama", "bedrock"])
async def test_without_a_fetcher_addresses_are_refused_by_name(kind: str) -> None:
    connected, answer = CONNECTED[kind]
    async with connected(answer) as (upstream, provider):
        with pytest.raises(UnsupportedParameter, match="not by address") as caught:
            await collect(provider, asked(at(CAT)))
    assert caught.value.param == "messages"
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("part", "files", "why"),
    [
        (at("https://files.example/none"), Files(), "it cannot be fetched"),
        (at(PAPER), Files(), "no image"),
        (at("https://files.example/page"), Files("text/html", {"https://files.example/page": b"<html>"}), "no image"),
    ],
)
async def test_what_cannot_be_had_is_a_400_with_its_place(part: Part, files: Files, why: str) -> None:
    connected, answer = CONNECTED["ollama"]
    async with connected(answer, fetcher=files) as (upstream, provider):
        with pytest.raises(InvalidRequest, match=why) as caught:
            await collect(provider, asked(at(CAT), part))
    assert caught.value.param == "messages[0].content[1]"
    assert upstream.requests == []


async def test_more_files_than_one_request_may_name_are_refused_before_any_is_fetched() -> None:
    files = Files()
    connected, answer = CONNECTED["ollama"]
    async with connected(answer, fetcher=files) as (_, provider):
        with pytest.raises(InvalidRequest, match="more than 64 files") as caught:
            await collect(provider, asked(*[at(CAT)] * (MAX_FILES + 1)))
    assert caught.value.param == "messages[0].content[64]"
    assert files.asked == []


async def test_files_too_large_together_are_refused() -> None:
    many = {f"https://files.example/{n}.png": PNG for n in range(20)}
    files = Files(more=many)
    media = FetchedMedia(files, (Image,), max_bytes=4 * len(PNG))
    async with ollama_wire.connected(ollama_wire.whole("ok")) as (upstream, provider):
        with pytest.raises(InvalidRequest, match="too large together"):
            async with aclosing(media.stream(provider.stream, asked(*[at(url) for url in many]))) as batches:
                assert [batch async for batch in batches]
    assert 4 <= len(files.asked) < len(many)
    assert upstream.requests == []
