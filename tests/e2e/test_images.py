"""Images over HTTP, as the clients of each dialect send them, to a local model that reads them: data and addresses."""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.cases.tiny_model import write_model
from tests.mock_upstream import Answer, MockUpstream
from tests.providers.local.tiny_vision import plain, png, write_vision_model, write_vision_pair
from tests.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

RAW = png(plain("red"))
DATA = base64.b64encode(RAW).decode()
OTHER = base64.b64encode(png(plain("green"))).decode()


@dataclass(frozen=True)
class Served:
    url: str
    files: MockUpstream
    session: aiohttp.ClientSession

    async def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        async with self.session.post(self.url + path, json=body) as answer:
            return answer.status, await answer.json(content_type=None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("models")
    decoder, mmproj = write_vision_pair(folder / "pair")
    rows = (
        f"vlm: {{source: '{write_vision_model(folder / 'vlm')}'}}, text: {{source: '{write_model(folder / 'text')}'}}, "
        f"pair: {{source: '{decoder}', mmproj: '{mmproj}'}}"
    )
    file = Answer(status=200, headers={"content-type": "image/png"}, pieces=(RAW,), framing="length")
    async with MockUpstream(file) as files:
        text = (
            f"version: 1\nproviders:\n  local: {{threads: 1, device: cpu, models: {{{rows}}}}}\n"
            "storage: {url: memory}\nfetch: {schemes: [http, data], allow_hosts: [127.0.0.1]}\n"
        )
        async with serving(text) as url, aiohttp.ClientSession() as session:
            yield Served(url, files, session)


def chat(source: str, *, model: str = "local/vlm", **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": source}}]
    return {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 6,
        "temperature": 0,
        **more,
    }


def uri(data: str) -> str:
    return f"data:image/png;base64,{data}"


async def test_chat(served: Served) -> None:
    status, answer = await served.post("/v1/chat/completions", chat(uri(DATA)))
    assert status == 200, answer
    assert answer["usage"]["prompt_tokens_details"]["image_tokens"] == 4
    _, other = await served.post("/v1/chat/completions", chat(uri(OTHER)))
    assert answer["choices"][0]["message"]["content"] != other["choices"][0]["message"]["content"]


async def test_a_gguf_with_its_tower_answers_as_the_folder(served: Served) -> None:
    for data in (DATA, OTHER):
        (status, answer), (_, expected) = [
            await served.post("/v1/chat/completions", chat(uri(data), model=model))
            for model in ("local/pair", "local/vlm")
        ]
        assert status == 200, answer
        assert answer["choices"] == expected["choices"]
        assert answer["usage"]["prompt_tokens_details"]["image_tokens"] == 4


async def test_an_address_is_fetched_by_the_rules_of_run_yaml(served: Served) -> None:
    before = len(served.files.requests)
    _, sent = await served.post("/v1/chat/completions", chat(uri(DATA)))
    _, fetched = await served.post("/v1/chat/completions", chat(f"{served.files.base_url}/p.png"))
    assert fetched["choices"][0]["message"] == sent["choices"][0]["message"]
    assert len(served.files.requests) == before + 1
    for refused in (f"http://localhost:{served.files.base_url.rpartition(':')[2]}/p.png", "https://8.8.8.8/p.png"):
        status, answer = await served.post("/v1/chat/completions", chat(refused))
        assert (status, answer["error"]["param"]) == (400, "messages[0].content[1]"), answer
        assert answer["error"]["code"] == "invalid_url"


async def test_responses(served: Served) -> None:
    content = [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": uri(DATA)}]
    body = {"model": "local/vlm", "input": [{"role": "user", "content": content}], "temperature": 0}
    status, answer = await served.post("/v1/responses", {**body, "max_output_tokens": 16})
    assert status == 200, answer
    told, plain = answer["usage"]["input_tokens"], [{"role": "user", "content": "What?"}]
    _, without = await served.post("/v1/responses", {**body, "input": plain, "max_output_tokens": 16})
    assert told == without["usage"]["input_tokens"] + 4 + len("\n\n<>\n\n")
    assert answer["output"] != without["output"]


async def test_anthropic(served: Served) -> None:
    def body(data: str) -> dict[str, Any]:
        source = {"type": "base64", "media_type": "image/png", "data": data}
        content = [{"type": "text", "text": "What?"}, {"type": "image", "source": source}]
        return {
            "model": "local/vlm",
            "max_tokens": 6,
            "temperature": 0,
            "messages": [{"role": "user", "content": content}],
        }

    status, answer = await served.post("/v1/messages", body(DATA))
    assert status == 200, answer
    _, other = await served.post("/v1/messages", body(OTHER))
    assert answer["content"] != other["content"]
    by_url = body(DATA)
    by_url["messages"][0]["content"][1]["source"] = {"type": "url", "url": f"{served.files.base_url}/p.png"}
    assert (await served.post("/v1/messages", by_url))[1]["content"] == answer["content"]
    _, counted = await served.post(
        "/v1/messages/count_tokens", {k: v for k, v in body(DATA).items() if k != "max_tokens"}
    )
    usage = answer["usage"]
    assert counted["input_tokens"] == usage["input_tokens"] + (usage["cache_read_input_tokens"] or 0)


async def test_gemini(served: Served) -> None:
    def body(data: str) -> dict[str, Any]:
        parts = [{"text": "What?"}, {"inlineData": {"mimeType": "image/png", "data": data}}]
        return {
            "contents": [{"role": "user", "parts": parts}],
            "generationConfig": {"temperature": 0, "maxOutputTokens": 6},
        }

    status, answer = await served.post("/v1beta/models/local/vlm:generateContent", body(DATA))
    assert status == 200, answer
    details = {row["modality"]: row["tokenCount"] for row in answer["usageMetadata"]["promptTokensDetails"]}
    assert details["IMAGE"] == 4
    _, other = await served.post("/v1beta/models/local/vlm:generateContent", body(OTHER))
    assert answer["candidates"][0]["content"] != other["candidates"][0]["content"]


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
async def test_ollama(served: Served, path: str) -> None:
    def body(data: str) -> dict[str, Any]:
        options = {"temperature": 0, "num_predict": 6}
        if path == "/api/generate":
            return {"model": "local/vlm", "prompt": "What?", "images": [data], "stream": False, "options": options}
        message = {"role": "user", "content": "What?", "images": [data]}
        return {"model": "local/vlm", "messages": [message], "stream": False, "options": options}

    status, answer = await served.post(path, body(DATA))
    assert status == 200, answer
    _, other = await served.post(path, body(OTHER))
    said = [row["response"] if path == "/api/generate" else row["message"] for row in (answer, other)]
    assert said[0] != said[1]


async def test_an_image_streams_as_it_answers(served: Served) -> None:
    _, whole = await served.post("/v1/chat/completions", chat(uri(DATA)))
    body = chat(uri(DATA), stream=True)
    async with served.session.post(f"{served.url}/v1/chat/completions", json=body) as answer:
        lines = [line async for line in answer.content if line.startswith(b"data: {")]
    said = "".join(piece.get("content") or "" for line in lines for piece in deltas(line))
    assert said == whole["choices"][0]["message"]["content"]


def deltas(line: bytes) -> list[dict[str, Any]]:
    return [choice["delta"] for choice in json.loads(line[6:])["choices"]]


async def test_a_text_model_refuses_images_by_their_place(served: Served) -> None:
    status, answer = await served.post("/v1/chat/completions", chat(uri(DATA), model="local/text"))
    assert status == 400
    assert answer["error"]["param"] == "messages[0]" or answer["error"]["param"].startswith("messages[0].")


async def test_lists_of_models_say_which_ones_read_images(served: Served) -> None:
    await served.post("/v1/chat/completions", chat(uri(DATA)))
    await served.post("/v1/chat/completions", {**chat(uri(DATA), model="local/text"), "messages": []})
    async with served.session.get(f"{served.url}/v1/models") as answer:
        rows = {row["id"]: row["gateway"] for row in (await answer.json())["data"]}
    assert rows["local/vlm"]["input"] == ["text", "image"]
    assert rows["local/text"]["input"] == ["text"]
    for model, reads in (("local/vlm", True), ("local/pair", True), ("local/text", False)):
        _, card = await served.post("/api/show", {"model": model})
        assert ("vision" in card["capabilities"]) is reads
