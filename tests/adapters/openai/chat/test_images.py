"""Images that a chat model made, as OpenRouter tells of them: to clients of every dialect that has a word for them."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.events import MediaDelta, ProviderReported
from adapters.canonical.messages import MediaSource
from adapters.canonical.result import fold
from adapters.front import Front
from adapters.gemini.front import GenerateFront
from adapters.openai.chat.images import parse_images
from adapters.openai.chat.upstream import ChatUpstream
from tests.adapters.openai.exchange import HEAD, chat, chunks_of, sse
from tests.adapters.openai.responses.exchange import front_of
from tests.adapters.sides import Sides

DATA = ["iVBORw0KGgo=", "/9j/4AAQ"]
URLS = [f"data:image/png;base64,{DATA[0]}", f"data:image/jpeg;base64,{DATA[1]}"]
MADE = [{"type": "image_url", "index": i, "image_url": {"url": url}} for i, url in enumerate(URLS)]
GEMINI = GenerateFront(), {"contents": [{"role": "user", "parts": [{"text": "draw"}]}]}
RESPONSES = front_of(), {"model": "m", "input": "draw", "store": False}


def whole(images: Any, **said: Any) -> bytes:
    message = {"role": "assistant", "content": "Here.", "images": images, **said}
    return json.dumps({"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


def streamed(*deltas: Any) -> bytes:
    rows: list[Any] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    rows.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    return sse(*({"id": "c", "choices": [row]} for row in rows)) + b"data: [DONE]\n\n"


STREAM = streamed({"content": "Here."}, {"content": "", "images": MADE[:1]}, {"content": "", "images": MADE[1:]})


@pytest.mark.parametrize("client", [GEMINI, RESPONSES])
def test_they_reach_clients_of_other_dialects_streamed_and_whole(client: tuple[Front, dict[str, Any]]) -> None:
    front, body = client
    sides = Sides(front, ChatUpstream(), HEAD, json.dumps(body).encode())
    events, error = sides.read_stream(STREAM)
    assert error is None
    told, answers = sides.stream(events).decode(), [sides.answer(events).decode()]
    events, error = sides.read_body(whole(MADE))
    assert error is None
    answers.append(sides.answer(events).decode())
    for said in (told, *answers):
        assert [data in said for data in ("Here.", *DATA)] == [True] * 3


def test_chat_clients_get_them_as_they_came_streamed_and_whole() -> None:
    exchange = chat()
    events, _ = exchange.read_body(whole(MADE))
    message = json.loads(exchange.answer(events))["choices"][0]["message"]
    assert (message["content"], message["images"]) == ("Here.", MADE)
    exchange = chat(stream=True)
    events, _ = exchange.read_stream(STREAM)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks_of(exchange.stream(events))]
    assert [image for delta in deltas for image in delta.get("images", ())] == MADE


def test_a_stream_may_be_cut_anywhere() -> None:
    expected, _ = chat(stream=True).read_stream(STREAM)
    assert len([event for event in expected if isinstance(event, MediaDelta)]) == 2
    for cut in range(0, len(STREAM), 7):
        assert chat(stream=True).read_stream(STREAM[:cut], STREAM[cut:]) == (expected, None)


def test_an_answer_of_an_image_alone_is_one() -> None:
    events, error = chat().read_body(whole(MADE[:1], content=None))
    assert error is None
    assert len(fold(events).choices[0].parts) == 1


@pytest.mark.parametrize(
    "odd",
    [
        [{"type": "image_url", "image_url": {"url": "https://x/a.png"}}],
        [{"type": "image_url", "image_url": {"url": URLS[0], "detail": "high"}}],
        [MADE[0], {"type": "image_url", "image_url": {"url": "data:image/svg+xml,<svg/>"}}],
        {"later": "form"},
        [],
        None,
    ],
)
def test_others_are_passed_on_to_chat_clients_alone(odd: Any) -> None:
    exchange = chat()
    events, error = exchange.read_body(whole(odd))
    assert error is None
    assert not any(isinstance(event, MediaDelta) for event in events)
    assert any(isinstance(event, ProviderReported) for event in events)
    assert json.loads(exchange.answer(events))["choices"][0]["message"]["images"] == odd


def test_images_behind_the_end_of_their_choice_are_an_error() -> None:
    late = {"id": "c", "choices": [{"index": 0, "delta": {"images": MADE}}]}
    _, error = chat(stream=True).read_stream(STREAM.removesuffix(b"data: [DONE]\n\n") + sse(late))
    assert isinstance(error, BadUpstreamResponse)


def test_data_are_told_from_their_type() -> None:
    assert parse_images(json.dumps(MADE).encode()) == [
        MediaSource(data=DATA[0], media_type="image/png"),
        MediaSource(data=DATA[1], media_type="image/jpeg"),
    ]
