"""A response while it is made: for any order of a provider's events, and at each moment of its life."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.canonical.errors import UpstreamError, UpstreamInternal
from adapters.canonical.events import (
    AnnotationAdded,
    ChoiceFinished,
    Event,
    HostedToolEvent,
    MediaDelta,
    PartReported,
    ProviderReported,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import ProviderData
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob, Usage
from adapters.openai.responses.live import LiveResponse
from adapters.openai.responses.output import item_id
from adapters.openai.responses.wire_events import OPEN_RESPONSES_FORM, OPENAI_FORM, error_event
from tests.adapters.openai.responses.event_order import check_events, checked
from tests.adapters.openai.responses.exchange import front_of, responses

STOP = ChoiceFinished(0, StopReason.STOP)
RESPONSES = "openai.responses"
TEXT = st.text(alphabet="ab\n\u00e9", min_size=1, max_size=3)
TOKEN = TokenLogprob("a", -0.5, raw=b"a")


@st.composite
def part_events(draw: st.DrawFn, part: int) -> list[Event]:
    """The events of one part, in their order."""
    texts = draw(st.lists(TEXT, min_size=1, max_size=3))
    match draw(st.sampled_from(("text", "refusal", "thought", "summary", "call", "custom", "hosted", "image"))):
        case "text":
            reported = draw(st.sampled_from((None, {"new_item": b"true", "phase": b'"commentary"'})))
            before = [] if reported is None else [PartReported(0, part, ProviderData(RESPONSES, reported))]
            logprobs = draw(st.sampled_from(((), (TOKEN,))))
            said: list[Event] = [
                TextDelta(0, part, text, logprobs, draw(st.sampled_from(((), (7,))))) for text in texts
            ]
            note = AnnotationAdded(0, part, b'{"type":"file_path","file_id":"f","index":0}', RESPONSES)
            return [*before, *said, *draw(st.sampled_from(([], [note])))]
        case "refusal":
            return [RefusalDelta(0, part, text) for text in texts]
        case "thought":
            proof = ReasoningFinished(0, part, signature="s", origin="up")
            return [*[ReasoningDelta(0, part, text) for text in texts], *draw(st.sampled_from(([], [proof])))]
        case "summary":
            return [ReasoningDelta(0, part, text, summary=True, piece=i) for i, text in enumerate(texts)]
        case "hosted":
            added = HostedToolEvent(
                0, part, "response.output_item.added", b'{"type":"x_call","id":"x%d"}' % part, RESPONSES
            )
            payload = b'{"type":"response.x_call.done","item_id":"x%d","output_index":9,\n"sequence_number":1}' % part
            told = HostedToolEvent(0, part, "response.x_call.done", payload, RESPONSES)
            whole = HostedToolEvent(0, part, "x_call", b'{"type":"x_call","id":"x%d","ok":1}' % part, RESPONSES)
            return [added, told, whole]
        case "image":
            return [MediaDelta(0, part, "image", data="AA") for _ in texts]
        case kind:
            started = ToolCallStarted(0, part, f"call_{part}", "f", "custom" if kind == "custom" else "function")
            ended = draw(st.sampled_from(([], [ToolCallFinished(0, part)])))
            return [started, *[ToolArgumentsDelta(0, part, text) for text in texts], *ended]


@st.composite
def answers(draw: st.DrawFn, *, interleaved: bool) -> list[Event]:
    """All events of an answer. Without `interleaved` only calls go on beside each other, as providers do it."""
    parts = [draw(part_events(part)) for part in range(draw(st.integers(1, 4)))]
    events: list[Event] = []
    if interleaved:
        while any(parts):
            live = draw(st.sampled_from([part for part in parts if part]))
            events.append(live.pop(0))
    else:
        events = [event for part in parts for event in part]
    reason = draw(st.sampled_from((StopReason.STOP, StopReason.LENGTH, StopReason.CONTENT_FILTER, StopReason.OTHER)))
    return [*events, ChoiceFinished(0, reason), UsageReported(Usage(prompt_tokens=1, completion_tokens=2))]


@settings(max_examples=150)
@given(answers(interleaved=True), st.booleans())
def test_any_order_of_events_is_a_stream_in_order(events: list[Event], sealed: bool) -> None:
    include = ["reasoning.encrypted_content"] if sealed else None
    found = checked(responses(include=include).stream(events))
    assert found["status"] in ("completed", "incomplete")


@settings(max_examples=150)
@given(answers(interleaved=False))
def test_the_stream_says_what_the_body_says(events: list[Event]) -> None:
    exchange = responses(include=["reasoning.encrypted_content", "message.output_text.logprobs"])
    assert json.loads(exchange.answer(events)) == checked(exchange.stream(events))


@settings(max_examples=50)
@given(answers(interleaved=True), st.data())
def test_no_text_is_lost_wherever_it_fails(events: list[Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(events) - 2))
    found = checked(responses().stream(events[:cut], UpstreamInternal("broken")))
    said = "".join([event.text for event in events[:cut] if isinstance(event, TextDelta)])
    parts = [part for item in found["output"] if item["type"] == "message" for part in item["content"]]
    assert "".join([part["text"] for part in parts if part["type"] == "output_text"]) == said


def live_of(events: Sequence[Event] = (), **fields: Any) -> LiveResponse:
    exchange = responses(**fields)
    live = front_of().live(exchange.request, exchange.head)
    live.feed(events)
    return live


def test_a_snapshot_shows_what_there_is_now() -> None:
    live = live_of([TextDelta(0, 0, "par")])
    found = json.loads(live.snapshot())
    assert (found["status"], found["output"][0]["status"]) == ("in_progress", "in_progress")
    assert found["output"][0]["content"][0]["text"] == "par"
    assert found["completed_at"] is None


def test_a_cancelled_response_says_so_in_a_failed_event_and_nothing_follows() -> None:
    exchange = responses()
    live = front_of().live(exchange.request, exchange.head)
    events = [*live.queue(), *live.start(), *live.feed([TextDelta(0, 0, "par")]), *live.cancel()]
    found = check_events([json.loads(event.data) for event in events])
    assert (found["status"], found["error"]) == ("cancelled", None)
    assert live.is_final
    assert live.fail(UpstreamInternal("late")) == []
    assert live.cancel() == []
    assert json.loads(live.snapshot()) == found


def test_a_queued_response_can_be_cancelled_before_it_began() -> None:
    exchange = responses()
    live = front_of().live(exchange.request, exchange.head)
    events = [*live.queue(), *live.cancel()]
    assert check_events([json.loads(event.data) for event in events])["status"] == "cancelled"


def test_kept_items_have_the_proof_of_a_thought_though_the_client_did_not_ask() -> None:
    live = live_of([ReasoningDelta(0, 0, "hm"), ReasoningFinished(0, 0, signature="s", origin="up"), STOP])
    live.finish()
    (kept,) = [json.loads(item) for item in live.kept_items()]
    (shown,) = json.loads(live.snapshot())["output"]
    opened = front_of().seal.open_thought(kept.pop("encrypted_content"), "x")
    assert kept == shown
    assert (opened.text, opened.signature, opened.origin) == ("hm", "s", "up")


def test_details_of_a_chat_upstream_travel_in_the_seal() -> None:
    details = ProviderData("openai.chat", {"reasoning_details": b'[{"type":"x"}]'})
    live = live_of(
        [ReasoningDelta(0, 0, "hm"), ReasoningFinished(0, 0, provider_data=details), STOP],
        include=["reasoning.encrypted_content"],
    )
    live.finish()
    (item,) = json.loads(live.snapshot())["output"]
    assert front_of().seal.open_thought(item["encrypted_content"], "x").provider_data == details


def test_ids_follow_from_the_response_and_the_place() -> None:
    assert item_id("msg", "resp_0a1b", 17) == "msg_0a1b0011"


def test_a_citation_of_chat_is_flat_here_and_one_of_another_dialect_has_no_word() -> None:
    chat = b'{"type":"url_citation","url_citation":{"url":"u","title":"t","start_index":0,"end_index":1}}'
    live = live_of(
        [
            TextDelta(0, 0, "a"),
            AnnotationAdded(0, 0, chat, "openai.chat"),
            AnnotationAdded(0, 0, b'{"type":"char_location"}', "anthropic.messages"),
            STOP,
        ]
    )
    live.finish()
    (item,) = json.loads(live.snapshot())["output"]
    assert item["content"][0]["annotations"] == [
        {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    ]


def test_a_tool_of_a_namespace_is_called_by_its_own_name() -> None:
    namespace = {
        "type": "namespace",
        "name": "crm",
        "description": "d",
        "tools": [{"type": "function", "name": "find"}],
    }
    live = live_of([ToolCallStarted(0, 0, "c", "crm__find"), STOP], tools=[namespace])
    live.finish()
    (item,) = json.loads(live.snapshot())["output"]
    assert (item["namespace"], item["name"]) == ("crm", "find")


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_a_call_that_names_its_namespace_itself_has_its_own_name_there(kind: str) -> None:
    data = ProviderData(RESPONSES, {"namespace": b'"crm"'})
    live = live_of([ToolCallStarted(0, 0, "c", "crm__find", kind, data), STOP])
    live.finish()
    (item,) = json.loads(live.snapshot())["output"]
    assert (item["namespace"], item["name"]) == ("crm", "find")


def test_fields_of_an_upstream_of_the_dialect_are_said_and_a_service_tier_of_chat() -> None:
    live = live_of([ProviderReported({"tool_usage": b"{}", "model": b'"other"'}, RESPONSES), STOP])
    live.finish()
    found = json.loads(live.snapshot())
    assert (found["tool_usage"], found["model"]) == ({}, "public-name")
    chat = live_of([ProviderReported({"service_tier": b'"flex"', "system_fingerprint": b'"x"'}, "openai.chat"), STOP])
    chat.finish()
    found = json.loads(chat.snapshot())
    assert found["service_tier"] == "flex"
    assert "system_fingerprint" not in found


def test_the_messages_of_a_turn_are_shown_to_who_asks() -> None:
    live = live_of([TextDelta(0, 0, "a"), STOP], enable_response_messages=True, instructions="be")
    live.finish()
    found = json.loads(live.snapshot())
    assert found["input_messages"] == [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
    assert found["output_messages"] == [{"role": "assistant", "content": "a"}]


def test_usage_has_the_lists_of_its_one_turn() -> None:
    usage = Usage(prompt_tokens=5, completion_tokens=3, cached_tokens=2, reasoning_tokens=1)
    live = live_of([TextDelta(0, 0, "a"), STOP, UsageReported(usage)])
    live.finish()
    found = json.loads(live.snapshot())["usage"]
    assert (found["input_tokens"], found["output_tokens"], found["total_tokens"]) == (5, 3, 8)
    assert found["input_tokens_details"]["input_tokens_per_turn"] == [5]
    assert found["input_tokens_details"]["cached_tokens_per_turn"] == [2]
    assert found["output_tokens_details"]["output_tokens_per_turn"] == [3]
    assert found["output_tokens_details"]["tool_output_tokens"] == 0


@pytest.mark.parametrize(("form", "nested"), [(OPENAI_FORM, False), (OPEN_RESPONSES_FORM, True)])
def test_an_error_event_is_flat_in_one_dialect_and_nested_in_the_other(form: Any, nested: bool) -> None:
    event = error_event(UpstreamInternal("broken", code="c"), 4, form)
    found = json.loads(event.data)
    assert (event.name, found["type"], found["sequence_number"]) == ("error", "error", 4)
    inner = found["error"] if nested else found
    assert (inner["message"], inner["code"], inner["param"]) == ("broken", "c", None)
    assert ("error" in found) is nested


def test_a_body_on_several_lines_is_no_several_frames() -> None:
    raw = b'{"model": "m", "input": "hi", "tools": [{"type": "function",\r\n "name": "f"}], "metadata": {\n"k": "v"}}'
    exchange = type(responses())(raw)
    assert checked(exchange.stream([TextDelta(0, 0, "a\nb"), STOP]))["metadata"] == {"k": "v"}


def test_a_response_that_was_cancelled_before_anything_is_still_a_whole_stream() -> None:
    exchange = responses()
    events = front_of().live(exchange.request, exchange.head).cancel()
    assert check_events([json.loads(event.data) for event in events])["status"] == "cancelled"


def test_what_was_made_before_an_answer_was_given_up_is_not_lost() -> None:
    exchange = responses()
    live = front_of().live(exchange.request, exchange.head)
    with pytest.raises(UpstreamError):
        live.feed([TextDelta(0, 0, "par"), ChoiceFinished(0, StopReason.CANCELLED)])
    events = [json.loads(event.data) for event in live.fail(UpstreamInternal("gone"))]
    assert check_events(events)["output"][0]["content"][0]["text"] == "par"
