"""What a chat client reads: the rules of its stream and of its body (a number in a comment is the statement's)."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.canonical.errors import UpstreamError, UpstreamOverloaded
from adapters.canonical.events import (
    AnnotationAdded,
    ChoiceFinished,
    Event,
    HostedToolEvent,
    MediaDelta,
    PromptReported,
    ProviderReported,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import ProviderData
from adapters.canonical.result import fold
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob, TopLogprob, Usage
from adapters.openai.vocabulary import CHAT
from tests.adapters.openai.exchange import Exchange, chat, chunks_of

TOOLS = [{"type": "function", "function": {"name": "f"}}]
STOP = ChoiceFinished(0, StopReason.STOP)
CALLS: list[Event] = [
    ToolCallStarted(0, 0, "a", "f"),
    ToolCallStarted(0, 1, "b", "f"),
    ToolArgumentsDelta(0, 1, '{"x"'),
    ToolArgumentsDelta(0, 0, "{}"),
    ToolArgumentsDelta(0, 1, ":1}"),
    ToolCallFinished(0, 0),
    ToolCallFinished(0, 1),
    ChoiceFinished(0, StopReason.TOOL_CALLS),
]
TWO: list[Event] = [
    Started(),
    TextDelta(1, 0, "b"),
    TextDelta(0, 0, "a"),
    TextDelta(1, 0, "B"),
    ChoiceFinished(1, StopReason.LENGTH),
    TextDelta(0, 0, "A"),
    STOP,
    UsageReported(Usage(prompt_tokens=2, completion_tokens=4)),
]


def frames(events: Sequence[Event], **fields: Any) -> list[dict[str, Any]]:
    return chunks_of(chat(stream=True, **fields).stream(events))


def choices(events: Sequence[Event], **fields: Any) -> list[dict[str, Any]]:
    return [choice for chunk in frames(events, **fields) for choice in chunk["choices"]]


def body(events: Sequence[Event], **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(chat(**fields).answer(events))
    return found


def test_raw_fields_on_several_lines_do_not_end_a_frame() -> None:
    frames = chat(stream=True).stream(
        [
            ProviderReported({"own": b'{\n"x":\r\n1}'}, CHAT),
            TextDelta(0, 0, "x"),
            AnnotationAdded(0, 0, b'{"type":\n\n"url_citation"}', CHAT),
            ChoiceFinished(0, StopReason.STOP),
        ]
    )
    first, *_, note, _ = chunks_of(frames)
    assert first["own"] == {"x": 1}
    assert note["choices"][0]["delta"]["annotations"] == [{"type": "url_citation"}]


def test_the_role_is_sent_once_a_choice_and_first() -> None:  # 1, 2
    for index in (0, 1):
        own = [choice["delta"] for choice in choices(TWO, n=2) if choice["index"] == index]
        assert own[0] == {"role": "assistant", "content": ""}
        assert all("role" not in delta for delta in own[1:])


def test_content_is_null_where_something_else_than_text_comes_first() -> None:  # 2
    for first in (CALLS[0], ReasoningDelta(0, 0, "r"), RefusalDelta(0, 0, "n"), STOP):
        assert choices([first])[0]["delta"] == {"role": "assistant", "content": None}


def test_nothing_is_sent_before_the_upstream_yields() -> None:  # 2, 17
    renderer = chat(stream=True).renderer()
    assert renderer.feed([]) == b""
    assert renderer.feed([Started("id", 1, "m"), PromptReported(0), UsageReported(Usage())]) == b""


def test_a_calls_id_and_name_are_sent_once_in_its_first_fragment() -> None:  # 3
    fragments = [call for choice in choices(CALLS) for call in choice["delta"].get("tool_calls", ())]
    for index, id_ in ((0, "a"), (1, "b")):
        own = [call for call in fragments if call["index"] == index]
        assert own[0] == {"index": index, "id": id_, "type": "function", "function": {"name": "f", "arguments": ""}}
        assert all(set(call) == {"index", "function"} and set(call["function"]) == {"arguments"} for call in own[1:])


def test_call_indexes_are_dense_and_ascending_whatever_stands_between() -> None:  # 4
    events: list[Event] = [
        TextDelta(0, 0, "x"),
        ToolCallStarted(0, 1, "a", "f"),
        TextDelta(0, 2, "y"),
        ToolCallStarted(0, 3, "b", "f"),
        ToolCallStarted(1, 0, "c", "f"),
    ]
    found = [(choice["index"], call["index"]) for choice in choices(events, n=2) for call in calls_in(choice)]
    assert found == [(0, 0), (0, 1), (1, 0)]


def calls_in(choice: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = choice["delta"].get("tool_calls", [])
    return found


def test_joined_argument_fragments_are_the_bodys_arguments() -> None:  # 6
    joined = {0: "", 1: ""}
    for choice in choices(CALLS):
        for call in calls_in(choice):
            joined[call["index"]] += call["function"]["arguments"]
    message = body(CALLS)["choices"][0]["message"]
    assert [joined[0], joined[1]] == [call["function"]["arguments"] for call in message["tool_calls"]]


def test_a_call_that_the_client_named_itself_ends_in_stop_in_both_forms() -> None:  # 8
    named = {"type": "function", "function": {"name": "f"}}
    assert choices(CALLS, tools=TOOLS, tool_choice=named)[-1]["finish_reason"] == "stop"
    assert body(CALLS, tools=TOOLS, tool_choice=named)["choices"][0]["finish_reason"] == "stop"
    for choice in ("auto", "required"):
        assert choices(CALLS, tools=TOOLS, tool_choice=choice)[-1]["finish_reason"] == "tool_calls"


def test_exactly_one_chunk_of_a_choice_has_a_finish_and_nothing_follows() -> None:  # 11, 12
    for index, word in ((0, "stop"), (1, "length")):
        words = [choice["finish_reason"] for choice in choices(TWO, n=2) if choice["index"] == index]
        assert words[:-1] == [None] * (len(words) - 1)
        assert words[-1] == word


def test_usage_is_the_last_chunk_with_no_choices_and_only_when_asked_for() -> None:  # 13
    asked = frames(TWO, n=2, stream_options={"include_usage": True})
    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"] == {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6}
    assert all(chunk["choices"] and chunk["usage"] is None for chunk in asked[:-1])
    for options in ({}, {"include_usage": False}, None):
        plain = frames(TWO, n=2, stream_options=options)
        assert all(chunk["choices"] and "usage" not in chunk for chunk in plain)


def test_running_usage_never_falls_and_ends_at_the_final_usage() -> None:  # 14
    events: list[Event] = []
    for count in range(1, 4):
        events += [UsageReported(Usage(prompt_tokens=2, completion_tokens=count)), TextDelta(0, 0, "x")]
    options = {"include_usage": True, "continuous_usage_stats": True}
    found = [chunk["usage"]["completion_tokens"] for chunk in frames([*events, STOP], stream_options=options)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1, 3)


def test_id_created_and_model_are_constant_and_the_gateways() -> None:  # 15
    found = frames([Started("up", 5, "up-model"), *TWO[1:]], n=2, stream_options={"include_usage": True})
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in found} == {
        ("chatcmpl-gateway", 1790000001, "public-name")
    }


def test_done_is_sent_after_an_error_too_and_no_finish_is() -> None:  # 16
    renderer = chat(stream=True).renderer()
    out = renderer.feed([TextDelta(0, 0, "par")]) + renderer.fail(UpstreamOverloaded("busy"))
    chunks = chunks_of(out)
    assert chunks[-1] == {"error": {"message": "busy", "type": "upstream_error", "param": None, "code": "overloaded"}}
    assert all(choice["finish_reason"] is None for chunk in chunks[:-1] for choice in chunk["choices"])


def test_steps_without_text_send_no_chunk_but_every_asked_token_is_told() -> None:  # 19
    silent: list[Event] = [TextDelta(0, 0, ""), TextDelta(0, 0, "")]
    assert len(choices([*silent, STOP])) == 2
    told: list[Event] = [TextDelta(0, 0, "", (TokenLogprob("a", -1.0),)), TextDelta(0, 0, "", (), (7,))]
    found = choices([*told, STOP])
    assert found[1]["logprobs"]["content"][0]["token"] == "a"
    assert found[2]["token_ids"] == [7]


def test_reasoning_is_a_field_of_its_own_in_both_forms() -> None:  # 20
    events: list[Event] = [
        ReasoningDelta(0, 0, "r", logprobs=(TokenLogprob("r", -1.0),), token_ids=(1,)),
        TextDelta(0, 1, "a"),
        STOP,
    ]
    deltas = choices(events)
    assert deltas[1]["delta"] == {"reasoning_content": "r"}
    assert deltas[1]["token_ids"] == [1]
    message = body(events)["choices"][0]
    assert (message["message"]["reasoning_content"], message["message"]["content"]) == ("r", "a")
    for choice in (deltas[1], message):
        assert choice["logprobs"]["content"] is None
        assert choice["logprobs"]["reasoning_content"][0]["token"] == "r"


def test_token_bytes_are_the_true_ones_and_join_to_the_text() -> None:  # 26
    emoji = "😊".encode()
    entries = tuple(TokenLogprob("\ufffd", -0.1, raw=bytes([byte])) for byte in emoji)
    events: list[Event] = [TextDelta(0, 0, "", entries[:3]), TextDelta(0, 0, "😊", entries[3:]), STOP]
    told = [entry for choice in choices(events) if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    assert bytes(byte for entry in told for byte in entry["bytes"]) == emoji
    assert body(events)["choices"][0]["logprobs"]["content"] == told


def test_bytes_that_nobody_reported_are_null() -> None:
    entry = TokenLogprob("a", -0.1, top=(TopLogprob("b", -0.2),))
    told = choices([TextDelta(0, 0, "a", (entry,)), STOP])[1]["logprobs"]["content"][0]
    assert (told["bytes"], told["top_logprobs"][0]["bytes"]) == (None, None)


def test_logprobs_that_json_cannot_hold_are_floored() -> None:
    entry = TokenLogprob("a", -math.inf, top=(TopLogprob("b", math.nan),))
    told = choices([TextDelta(0, 0, "a", (entry,)), STOP])[1]["logprobs"]["content"][0]
    assert (told["logprob"], told["top_logprobs"][0]["logprob"]) == (-9999.0, -9999.0)


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (StopReason.STOP, "stop"),
        (StopReason.LENGTH, "length"),
        (StopReason.CONTENT_FILTER, "content_filter"),
        (StopReason.PAUSED, "stop"),
        (StopReason.OTHER, "stop"),
    ],
)
def test_every_good_stop_reason_has_a_word(reason: StopReason, word: str) -> None:
    finish = ChoiceFinished(0, reason, "odd_word")
    assert choices([finish])[-1]["finish_reason"] == word
    assert body([finish])["choices"][0]["native_finish_reason"] == "odd_word"


@pytest.mark.parametrize("reason", [StopReason.ERROR, StopReason.CANCELLED])
def test_a_failed_choice_is_an_error_never_a_word(reason: StopReason) -> None:
    with pytest.raises(UpstreamError, match="gave up"):
        choices([ChoiceFinished(0, reason)])


def test_the_stop_that_hit_is_told_in_both_forms() -> None:  # 22
    for stop in ("END", 7):
        finish = ChoiceFinished(0, StopReason.STOP, stop=stop)
        assert choices([finish])[-1]["stop_reason"] == stop
        assert body([finish])["choices"][0]["stop_reason"] == stop
    assert "stop_reason" not in choices([STOP])[-1]


def test_annotations_come_in_one_chunk_before_the_finish() -> None:
    events: list[Event] = [AnnotationAdded(0, 0, b'{"a":1}', "openai.chat"), TextDelta(0, 0, "x")]
    events += [AnnotationAdded(0, 0, b'{"b":2}', "openai.chat"), AnnotationAdded(0, 0, b"{}", "other")]
    found = choices([*events, STOP])
    assert [choice["delta"].get("annotations") for choice in found[-2:]] == [[{"a": 1}, {"b": 2}], None]


def test_opaque_data_of_another_dialect_is_not_shown() -> None:
    alien = ProviderData("gemini", {"extra_content": b'"blob"', "reasoning_details": b'["blob"]'})
    events: list[Event] = [
        ProviderReported({"secret": b'"blob"'}, "gemini"),
        ProviderReported({"secret": b'"blob"'}, "gemini", 0),
        ReasoningFinished(0, 0, provider_data=alien),
        ToolCallStarted(0, 1, "a", "f", provider_data=alien),
        HostedToolEvent(0, 2, "search", b'"blob"', "gemini"),
        STOP,
    ]
    assert b"blob" not in chat(stream=True).stream(events)
    assert b"blob" not in chat().answer(events)


def test_opaque_data_of_this_dialect_keeps_its_bytes() -> None:
    own = ProviderData("openai.chat", {"extra_content": b'{"s" : 1e400}'})
    details = ProviderData("openai.chat", {"reasoning_details": b'[{"s" : 1e400}]'})
    events: list[Event] = [
        ReasoningFinished(0, 0, provider_data=details),
        ToolCallStarted(0, 1, "a", "f", provider_data=own),
        STOP,
    ]
    for out in (chat(stream=True).stream(events), chat().answer(events)):
        assert b'"extra_content":{"s" : 1e400}' in out
        assert b'"reasoning_details":[{"s" : 1e400}]' in out


def test_a_field_that_comes_twice_without_a_chunk_between_is_told_twice() -> None:
    twice: list[Event] = [
        TextDelta(0, 0, "a"),
        ProviderReported({"delta.x": b"1"}, "openai.chat", 0),
        ProviderReported({"delta.x": b"2"}, "openai.chat", 0),
        STOP,
    ]
    assert [choice["delta"].get("x") for choice in choices(twice)] == [None, None, 1, 2]


def test_a_prompts_token_ids_are_told_once() -> None:
    events: list[Event] = [PromptReported(0, token_ids=(1, 2)), TextDelta(0, 0, "a"), STOP]
    assert [chunk.get("prompt_token_ids") for chunk in frames(events)] == [[1, 2], None, None]
    assert body(events)["prompt_token_ids"] == [1, 2]


TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=6)


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    """Events of one or two choices, interleaved."""
    per_choice: list[list[Event]] = []
    for choice in range(draw(st.integers(1, 2))):
        events: list[Event] = []
        for part in range(draw(st.integers(0, 4))):
            kind = draw(st.sampled_from(["text", "reasoning", "refusal", "call", "media"]))
            texts = draw(st.lists(TEXT, max_size=3))
            if kind == "call":
                events.append(ToolCallStarted(choice, part, f"c{choice}{part}", draw(TEXT) or "f"))
                events += [ToolArgumentsDelta(choice, part, text) for text in texts]
            elif kind == "media":
                events += [MediaDelta(choice, part, "audio", data="AA", transcript=text) for text in texts]
            else:
                delta = {"text": TextDelta, "reasoning": ReasoningDelta, "refusal": RefusalDelta}[kind]
                events += [delta(choice, part, text) for text in texts]
        per_choice.append([*events, ChoiceFinished(choice, StopReason.STOP)])
    merged: list[Event] = [Started()]
    while any(per_choice):
        merged.append(draw(st.sampled_from([events for events in per_choice if events])).pop(0))
    return merged


@settings(max_examples=200)
@given(answers(), st.data())
def test_frames_are_json_whatever_the_batches_and_join_to_the_body(events: list[Event], data: st.DataObject) -> None:
    exchange: Exchange = chat(stream=True, n=2)
    renderer = exchange.renderer()
    out = b""
    rest = list(events)
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        out += renderer.feed(rest[:size])
        rest = rest[size:]
    out += renderer.finish()
    assert out == exchange.stream(events)
    result = json.loads(exchange.answer(events))
    assert len(result["choices"]) == len(fold(events).choices)
    for choice in result["choices"]:
        own = [found for chunk in chunks_of(out) for found in chunk["choices"] if found["index"] == choice["index"]]
        for name in ("content", "reasoning_content", "refusal"):
            assert "".join(one["delta"].get(name) or "" for one in own) == (choice["message"].get(name) or "")


def test_images_that_the_model_made_are_in_the_message_streamed_and_whole() -> None:
    made: list[Event] = [
        Started(),
        TextDelta(0, 0, "here"),
        MediaDelta(0, 1, "image", data="AA", format="image/webp"),
        MediaDelta(0, 1, "image", data="BB"),
        MediaDelta(0, 2, "image", data="CC"),
        STOP,
    ]
    urls = ["data:image/webp;base64,AABB", "data:image/png;base64,CC"]
    images = [{"type": "image_url", "index": i, "image_url": {"url": url}} for i, url in enumerate(urls)]
    message = json.loads(chat().answer(made))["choices"][0]["message"]
    assert (message["content"], message["images"]) == ("here", images)
    choices = [chunk["choices"][0] for chunk in chunks_of(chat(stream=True).stream(made))]
    assert [choice["delta"]["images"] for choice in choices if "images" in choice["delta"]] == [images]
    assert choices[-1]["finish_reason"] == "stop"
