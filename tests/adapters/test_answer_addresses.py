"""Only addresses of the web, and data, reach a client."""

import orjson
import pytest

from adapters.answer_addresses import check_addresses
from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.request import Request
from adapters.gemini.answer import parse_whole
from adapters.openai.chat.upstream import ChatUpstream

ASKED = Request(model="m", dialect="chat")
GOOD = ["http://x/a.png", "HTTPS://x/a.png", "data:image/png;base64,AA==", "", None]
BAD = ["javascript:alert(1)", "file:///etc/passwd", " http://x", "java\tscript:x", "//x/a.png", "/a.png", "ftp://x/a"]


@pytest.mark.parametrize("address", GOOD)
@pytest.mark.parametrize("name", ["url", "image_url", "fileUri"])
def test_addresses_of_the_web_pass(address: str | None, name: str) -> None:
    check_addresses(orjson.dumps({"data": [{name: address}]}))


@pytest.mark.parametrize("address", BAD)
@pytest.mark.parametrize("name", ["url", "image_url", "fileUri"])
def test_others_are_refused_wherever_they_stand(address: str, name: str) -> None:
    with pytest.raises(BadUpstreamResponse, match="none of http, https and data"):
        check_addresses(orjson.dumps({"data": [{"url": "http://x"}, {"inner": {name: address}}]}))


def test_a_deep_value_is_looked_at_to_its_ground() -> None:
    deep = b"[" * 1000 + b'{"url":"file:x"}' + b"]" * 1000
    with pytest.raises(BadUpstreamResponse):
        check_addresses(deep)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(BadUpstreamResponse):
        check_addresses(b"<html>")


def test_images_that_a_chat_model_made_are_looked_at() -> None:
    def body(address: str) -> bytes:
        message = {
            "role": "assistant",
            "content": "x",
            "images": [{"type": "image_url", "image_url": {"url": address}}],
        }
        return orjson.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    assert ChatUpstream().parse_body(ASKED, body("https://x/a.png"))
    with pytest.raises(BadUpstreamResponse):
        ChatUpstream().parse_body(ASKED, body("javascript:x"))


def test_files_in_an_answer_of_gemini_are_looked_at() -> None:
    def body(address: str) -> bytes:
        parts = [{"fileData": {"fileUri": address, "mimeType": "image/png"}}]
        return orjson.dumps({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]})

    assert parse_whole(ASKED, "g", body("https://x/a.png"), str)
    with pytest.raises(BadUpstreamResponse):
        parse_whole(ASKED, "g", body("file:///x"), str)
