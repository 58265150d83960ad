"""The semantics of the Responses API, one test a statement (their numbers), as far as they need no store.

Streams are made of scripted events of a provider; `checked` fails on whatever is out of order.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from adapters.canonical.errors import (
    ContextOverflow,
    InvalidRequest,
    QueueFull,
    StreamTruncated,
    UpstreamError,
    UpstreamInternal,
    UpstreamRateLimited,
)
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
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
from adapters.canonical.messages import Message, Reasoning, Text, ToolCall, ToolResult
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from adapters.openai.responses.parse import read_body
from adapters.openai.responses.wire_events import OPEN_RESPONSES_FORM
from tests.adapters.openai.responses.event_order import check_events, checked, events_in
from tests.adapters.openai.responses.exchange import Exchange, front_of, responses

STOP = ChoiceFinished(0, StopReason.STOP)
LENGTH = ChoiceFinished(0, StopReason.LENGTH)
TOOLS = ChoiceFinished(0, StopReason.TOOL_CALLS)
USAGE = UsageReported(Usage(prompt_tokens=3, completion_tokens=2))
TURN: list[Event] = [
    Started(id="up"),
    ReasoningDelta(0, 0, "h"),
    ReasoningDelta(0, 0, "m"),
    TextDelta(0, 1, "Let "),
    TextDelta(0, 1, "me."),
    ToolCallStarted(0, 2, "call_1", "f"),
    ToolArgumentsDelta(0, 2, '{"a"'),
    ToolArgumentsDelta(0, 2, ":1}"),
    ToolCallFinished(0, 2),
    TOOLS,
    USAGE,
]


def names(frames: bytes) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events_in(frames)]


def final(events: Sequence[Event], **fields: Any) -> dict[str, Any]:
    return checked(responses(**fields).stream(events))


def messages_of(*items: Any, **fields: Any) -> tuple[Message, ...]:
    found = responses(input=list(items), **fields).request.messages
    assert found is not None
    return found


def test_42_created_then_in_progress_then_each_item_from_added_to_done_then_one_terminal_event() -> None:
    frames = responses().stream(TURN)
    checked(frames)
    assert names(frames) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_43_sequence_numbers_start_at_0_and_have_no_gap() -> None:
    numbers = [event["sequence_number"] for event in events_in(responses().stream(TURN))]
    assert numbers == list(range(len(numbers)))


def test_44_an_events_name_is_its_type_and_there_are_no_id_lines() -> None:
    for block in responses().stream(TURN).decode().split("\n\n")[:-2]:
        name, data = block.split("\n")
        assert name == "event: " + json.loads(data.removeprefix("data: "))["type"]


def test_45_ids_and_indexes_are_what_the_sdk_insists_on() -> None:
    events = events_in(responses().stream(TURN))
    added = [event for event in events if event["type"] == "response.output_item.added"]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in added] == [0, 1, 2]
    assert [(event["item"]["id"], event["item"].get("call_id")) for event in added] == [
        (event["item"]["id"], event["item"].get("call_id")) for event in done
    ]
    assert {event["response"]["id"] for event in events if "response" in event} == {"resp_gateway"}


def test_47_the_terminal_event_has_what_the_body_has_ids_included() -> None:
    exchange = responses()
    assert json.loads(exchange.answer(TURN)) == checked(exchange.stream(TURN))


def test_48_added_is_empty_and_in_progress_and_names_the_call_and_done_is_whole() -> None:
    events = events_in(responses().stream(TURN))
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert {item["status"] for item in added} == {"in_progress"}
    assert (added[1]["content"], added[2]["arguments"]) == ([], "")
    assert (added[2]["name"], added[2]["call_id"]) == ("f", "call_1")
    assert done[1]["content"][0]["text"] == "Let me."
    assert done[2]["arguments"] == '{"a":1}'


def test_49_arguments_end_in_one_done_with_the_joined_deltas_before_the_item_ends() -> None:
    events = events_in(responses().stream(TURN))
    deltas = [event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"]
    (done,) = [event for event in events if event["type"] == "response.function_call_arguments.done"]
    assert done["arguments"] == "".join(deltas)
    assert events[events.index(done) + 1]["type"] == "response.output_item.done"


def test_50_a_cut_is_incomplete_with_its_reason_and_the_cut_item_is_last() -> None:
    found = final([TextDelta(0, 0, "a"), ToolCallStarted(0, 1, "c", "f"), ToolArgumentsDelta(0, 1, "{"), LENGTH, USAGE])
    assert (found["status"], found["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in found["output"]] == ["completed", "incomplete"]
    filtered = final([TextDelta(0, 0, "a"), ChoiceFinished(0, StopReason.CONTENT_FILTER)])
    assert filtered["incomplete_details"] == {"reason": "content_filter"}


def test_50_a_call_that_its_provider_ended_before_the_cut_was_known_is_still_incomplete() -> None:
    ended: list[Event] = [
        ToolCallStarted(0, 0, "c", "f"),
        ToolArgumentsDelta(0, 0, "{"),
        ToolCallFinished(0, 0),
        LENGTH,
    ]
    assert final(ended)["output"][0]["status"] == "incomplete"
    thought = final([ReasoningDelta(0, 0, "hm"), LENGTH])
    assert (thought["output"][0]["status"], thought["status"]) == ("incomplete", "incomplete")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UpstreamInternal("broken"), "server_error"),
        (StreamTruncated("cut"), "server_error"),
        (UpstreamRateLimited("slow"), "rate_limit_exceeded"),
        (QueueFull("full"), "rate_limit_exceeded"),
        (ContextOverflow("long"), "invalid_prompt"),
        (InvalidRequest("no", code="invalid_image_url"), "invalid_image_url"),
        (UpstreamInternal("no", code="some_code"), "server_error"),
    ],
)
def test_51_a_failure_is_response_failed_with_a_code_of_the_enum(error: UpstreamError, code: str) -> None:
    frames = responses().stream([TextDelta(0, 0, "par")], error)
    found = checked(frames)
    assert names(frames)[-1] == "failed"
    assert (found["status"], found["error"]["code"], found["error"]["message"]) == ("failed", code, error.message)
    assert found["usage"] is None
    assert found["output"][0]["status"] == "incomplete"


def test_51_a_failure_before_anything_was_said_is_a_whole_stream_too() -> None:
    assert names(responses().stream([], UpstreamInternal("broken"))) == ["created", "in_progress", "failed"]


def test_51_an_answer_that_the_upstream_gave_up_has_no_finish() -> None:
    with pytest.raises(UpstreamError):
        responses().stream([TextDelta(0, 0, "a"), ChoiceFinished(0, StopReason.ERROR, "error")])


def test_52_completed_has_neither_error_nor_incomplete_details() -> None:
    found = final(TURN)
    assert (found["status"], found["error"], found["incomplete_details"]) == ("completed", None, None)


def test_53_reasoning_stands_before_its_message_and_its_blob_restores_it() -> None:
    signed: list[Event] = [
        ReasoningDelta(0, 0, "hm"),
        ReasoningFinished(0, 0, signature="SIG", origin="claude"),
        TextDelta(0, 1, "Oslo"),
        STOP,
    ]
    output = final(signed, include=["reasoning.encrypted_content"], store=False)["output"]
    assert [item["type"] for item in output] == ["reasoning", "message"]
    (message,) = messages_of(*output)
    assert message.parts == (Reasoning(text="hm", signature="SIG", origin="claude"), Text(text="Oslo"))


def test_53_a_thought_that_is_shown_as_a_summary_is_still_the_text_that_its_maker_signed() -> None:
    proof = ReasoningFinished(0, 0, signature="SIG", origin="claude")
    thought: list[Event] = [ReasoningDelta(0, 0, "h"), ReasoningDelta(0, 0, "m"), proof]
    pieces = [ReasoningDelta(0, 0, text, summary=True, piece=piece) for piece, text in enumerate(("so", "then"))]
    summed: list[Event] = [*pieces, proof]
    asked = {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}
    as_text = Reasoning(text="hm", signature="SIG", origin="claude")
    as_summary = Reasoning(summary=("so", "then"), signature="SIG", origin="claude")
    for events, expected, shown in ((thought, as_text, ["hm"]), (summed, as_summary, ["so", "then"])):
        item = final([*events, STOP], **asked)["output"][0]
        assert [piece["text"] for piece in item["summary"]] == shown
        (message,) = messages_of(item)
        assert message.parts == (expected,)


def test_53_nobody_gets_a_blob_who_did_not_ask() -> None:
    assert "encrypted_content" not in final([ReasoningDelta(0, 0, "hm"), STOP])["output"][0]


def test_54_summary_events_where_a_summary_was_asked_for_else_raw_ones() -> None:
    thought: list[Event] = [ReasoningDelta(0, 0, "hm"), TextDelta(0, 1, "a"), STOP]
    raw, summed = responses().stream(thought), responses(reasoning={"summary": "auto"}).stream(thought)
    checked(raw)
    assert checked(summed)["output"][0]["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert "reasoning_text.delta" in names(raw)
    assert {
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    } <= set(names(summed))
    assert not any("reasoning_text" in name for name in names(summed))
    theirs = responses(OPEN_RESPONSES_FORM).stream(thought)
    checked(theirs)
    assert "reasoning.delta" in names(theirs)


def test_55_stored_items_stand_before_the_new_input_in_order_and_instructions_before_both() -> None:
    asked = read_body(
        json.dumps({"model": "m", "input": "new", "instructions": "be", "previous_response_id": "resp_1"}).encode(),
        max_depth=64,
    )
    assert (asked.state.previous_response_id, asked.state.follows) == ("resp_1", "previous_response_id")
    before = [b'{"type":"message","role":"user","content":"old"}', b'{"role":"assistant","content":"answer"}']
    request = asked.request(front_of().seal, before=before)
    assert [(message.role, *message.parts) for message in request.messages or ()] == [
        ("system", Text(text="be")),
        ("user", Text(text="old")),
        ("assistant", Text(text="answer")),
        ("user", Text(text="new")),
    ]
    assert request.message_paths == ("instructions", "previous_response_id", "previous_response_id", "input")
    assert request.mirrored["previous_response_id"] == b'"resp_1"'


def test_57_a_previous_response_and_a_conversation_exclude_each_other() -> None:
    with pytest.raises(InvalidRequest) as caught:
        responses(previous_response_id="resp_1", conversation="conv_1")
    assert caught.value.param == "previous_response_id"


@pytest.mark.parametrize(
    "item",
    [
        {"role": "assistant", "content": "hello"},
        {"type": "message", "role": "assistant", "content": "hello"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "hello"}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}],
        },
        {
            "type": "message",
            "id": None,
            "role": "assistant",
            "status": None,
            "phase": None,
            "content": [{"type": "output_text", "text": "hello", "annotations": None, "logprobs": None}],
        },
    ],
)
def test_58_an_assistants_message_is_taken_in_every_shape(item: dict[str, Any]) -> None:
    assert messages_of({"role": "user", "content": "hi"}, item)[1] == Message(
        role="assistant", parts=(Text(text="hello"),)
    )


def test_58_a_text_is_one_message_and_items_of_unknown_types_are_kept() -> None:
    assert responses(input="hi").request.messages == (Message(role="user", parts=(Text(text="hi"),)),)
    later = {"type": "later_call", "id": "x", "n": 12345678901234567890123}
    (message,) = messages_of(later)
    sent = responses(input=[later]).sent()["input"]
    assert sent == [later]
    assert message.parts[0].raw == json.dumps(later).encode()  # type: ignore[union-attr]


def test_59_reasoning_message_and_calls_are_one_turn_and_results_attach_by_their_id() -> None:
    found = messages_of(
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": "Let me."},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": ""},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "1"}]},
    )
    assert [message.role for message in found] == ["user", "assistant", "tool", "tool"]
    assert found[1].parts == (
        Reasoning(text="hm"),
        Text(text="Let me."),
        ToolCall(id="a", name="f", arguments=""),
        ToolCall(id="b", name="f", arguments="{}"),
    )
    assert found[2].parts == (ToolResult(call_id="b", parts=(Text(text="2"),)),)


def test_59_two_messages_of_the_assistant_stay_two_and_a_thought_goes_with_what_follows_it() -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    found = messages_of({"role": "assistant", "content": "one"}, thought, {"role": "assistant", "content": "two"})
    assert [message.parts for message in found] == [(Text(text="one"),), (Reasoning(text="hm"), Text(text="two"))]


def test_61_background_requires_a_store() -> None:
    with pytest.raises(InvalidRequest) as caught:
        responses(background=True, store=False)
    assert caught.value.param == "background"


def test_70_allowed_tools_reach_the_target_beside_all_tools() -> None:
    tools = [{"type": "function", "name": "f", "strict": None}, {"type": "function", "name": "g"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]}
    exchange = responses(tools=tools, tool_choice=choice)
    sent = exchange.sent()
    assert [tool["name"] for tool in sent["tools"]] == ["f", "g"]
    assert sent["tool_choice"] == choice


def test_a_refusal_is_a_part_of_its_own() -> None:
    found = final([TextDelta(0, 0, "Well. "), RefusalDelta(0, 1, "I can"), RefusalDelta(0, 1, "'t."), STOP])
    (message,) = found["output"]
    assert [part["type"] for part in message["content"]] == ["output_text", "refusal"]
    assert message["content"][1]["refusal"] == "I can't."


def test_a_response_can_be_played_back_into_the_next_request_as_it_is() -> None:
    exchange = responses()
    body = json.loads(exchange.answer(TURN))
    follow_up = [{"role": "user", "content": "hi"}, *body["output"]]
    follow_up.append({"type": "function_call_output", "call_id": "call_1", "output": "ok"})
    roles = [
        message.role
        for message in Exchange(json.dumps({"model": "m", "input": follow_up}).encode()).request.messages or ()
    ]
    assert roles == ["user", "assistant", "tool"]


def test_a_stream_may_begin_in_a_queue() -> None:
    exchange = responses()
    live = front_of().live(exchange.request, exchange.head)
    events = [*live.queue(), *live.start(), *live.feed(TURN), *live.finish()]
    decoded = [json.loads(event.data) for event in events]
    check_events(decoded)
    assert [event["type"] for event in decoded[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert [event["response"]["status"] for event in decoded[:3]] == ["queued", "queued", "in_progress"]


def test_a_resumed_reader_sees_a_stream_without_its_start() -> None:
    events = events_in(responses().stream(TURN))
    assert check_events(events[7:], starts_at=7)["status"] == "completed"
