import json
from collections.abc import AsyncGenerator, Sequence

import pytest

from adapters.canonical.events import ChoiceFinished, Event, TextDelta, ToolCallFinished, ToolCallStarted, UsageReported
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob, Usage
from providers.base import Batch, ProviderSettings
from providers.registry import build
from providers.remote.end_marks import without_end_marks
from providers.remote.openai_compatible import OpenAICompatible
from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote.anthropic_wire import request
from tests.providers.remote.calls import collect
from tests.providers.remote.calls import text_of as text_of_events

MARKS = ("<|im_end|>", "</s>")
FINISH = ChoiceFinished(0, StopReason.STOP)
USAGE = UsageReported(Usage(completion_tokens=1))


async def read(events: Sequence[Event]) -> list[Event]:
    async def batches() -> AsyncGenerator[Batch, None]:
        for event in events:
            yield [event]

    return [event async for batch in without_end_marks(batches(), MARKS) for event in batch]


async def text_of(*pieces: str) -> str:
    found = await read([*[TextDelta(0, 0, piece) for piece in pieces], FINISH, USAGE])
    assert found[-2:] == [FINISH, USAGE]
    return "".join([event.text for event in found if isinstance(event, TextDelta)])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Hello.<|im_end|>", "Hello."),
        ("Hello.</s>", "Hello."),
        ("a < b and </s is no end", "a < b and </s is no end"),
        ("</s> is how it ends.", "</s> is how it ends."),
        ("cut <|im_", "cut <|im_"),
        ("</s>", ""),
        ("", ""),
    ],
)
async def test_a_mark_at_the_end_goes_however_the_answer_is_cut(text: str, left: str) -> None:
    for cut in range(len(text) + 1):
        assert await text_of(text[:cut], text[cut:]) == left
    assert await text_of(*text) == left


async def test_logprobs_of_what_stays_stay() -> None:
    kept, gone = TokenLogprob("Hi", -0.1), TokenLogprob("</s>", -0.2)
    events: list[Event] = [TextDelta(0, 0, "Hi", (kept,)), TextDelta(0, 0, "</s>", (gone,)), FINISH]
    assert await read(events) == [TextDelta(0, 0, "Hi", (kept,)), FINISH]


async def test_what_follows_a_held_text_comes_after_it() -> None:
    call: list[Event] = [ToolCallStarted(0, 1, "c", "f"), ToolCallFinished(0, 1)]
    events: list[Event] = [TextDelta(0, 0, "a <"), *call, TextDelta(0, 2, "b"), FINISH]
    assert await read(events) == [TextDelta(0, 0, "a "), TextDelta(0, 0, "<"), *call, TextDelta(0, 2, "b"), FINISH]


async def test_a_stream_that_breaks_off_keeps_what_was_said() -> None:
    assert await read([TextDelta(0, 0, "a <")]) == [TextDelta(0, 0, "a "), TextDelta(0, 0, "<")]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_vendor_that_leaves_marks_in_its_answers_gives_none_to_clients(stream: bool) -> None:
    whole = {"choices": [{"index": 0, "message": {"content": "Hello.<|eot_id|>"}, "finish_reason": "stop"}]}
    chunks = [
        {"choices": [{"index": 0, "delta": {"content": "Hello.<|eot"}}]},
        {"choices": [{"index": 0, "delta": {"content": "_id|>"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    pieces = [*[b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks], b"data: [DONE]\n\n"]
    async with MockUpstream(Answer.sse(pieces) if stream else Answer.json(json.dumps(whole).encode())) as upstream:
        provider = build(ProviderSettings(name="x", type="together", base_url=upstream.base_url, api_key="k"))
        events = await collect(provider.stream(request(stream=stream)))
        assert isinstance(provider, OpenAICompatible)
        await provider.aclose()
    assert text_of_events(events) == "Hello."
