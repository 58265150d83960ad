"""Pictures by their addresses through the whole gateway: fetched by the rules of `fetch`, once for all tries."""

import json
from typing import Any

import aiohttp

from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote.ollama_wire import whole
from tests.serving import serving

PNG = b"\x89PNG\r\n\x1a\nrest"
FILE = Answer(headers={"content-type": "image/png"}, pieces=(PNG,), framing="length")
TWO = (
    "version: 1\nstorage: {{url: memory}}\n"
    "providers: {{a: {{type: ollama, base_url: '{0}'}}, b: {{type: ollama, base_url: '{0}'}}}}\n"
    "models: {{m: {{targets: [a/m, b/m]}}}}\nreliability: {{retry: {{attempts: 1}}}}\n"
)


async def asked(url: str, session: aiohttp.ClientSession, picture: str) -> tuple[int, Any]:
    shown = {"type": "image_url", "image_url": {"url": picture}}
    turn = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, shown]}
    async with session.post(url + "/v1/chat/completions", json={"model": "m", "messages": [turn]}) as answer:
        return answer.status, await answer.json()


async def test_a_picture_is_fetched_once_though_the_first_target_fails() -> None:
    busy = Answer.json(b'{"error":"busy"}', 503)
    async with MockUpstream(busy, whole("A cat.")) as upstream, MockUpstream(FILE) as files:
        text = TWO.format(upstream.base_url.removesuffix("/v1")) + "fetch: {schemes: [http], private_addresses: true}\n"
        async with serving(text) as url, aiohttp.ClientSession() as session:
            status, body = await asked(url, session, files.base_url + "/cat.png")
    assert (status, body["choices"][0]["message"]["content"]) == (200, "A cat.")
    assert len(files.requests) == 1
    bodies = [json.loads(seen.body)["messages"][0]["images"] for seen in upstream.requests]
    assert len(bodies) == 2
    assert bodies[0] == bodies[1] != []


async def test_an_address_that_fetch_does_not_allow_is_a_400_that_names_it() -> None:
    async with MockUpstream(whole("A cat.")) as upstream, MockUpstream(FILE) as files:
        text = TWO.format(upstream.base_url.removesuffix("/v1"))
        async with serving(text) as url, aiohttp.ClientSession() as session:
            status, body = await asked(url, session, files.base_url + "/cat.png")
    assert status == 400
    assert body["error"]["param"] == "messages[0].content[1]"
    assert (files.requests, upstream.requests) == ([], [])
