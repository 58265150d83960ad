"""Calls that somebody made for a model in earlier turns, as the next model has them."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import Message, Opaque, Text, ToolCall, ToolResult
from adapters.canonical.request import Request
from adapters.openai.responses.tool_history import CallResult, ToolHistory, plain_messages

LIST = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []}


def call(number: int, **fields: Any) -> dict[str, Any]:
    found = {"type": "mcp_call", "id": f"mcp_{number}", "server_label": "s", "name": "f", "arguments": f"[{number}]"}
    return {**found, "output": f"out {number}", **fields}


def opaque(item: dict[str, Any]) -> Opaque:
    return Opaque(type=item["type"], raw=json.dumps(item).encode(), origin="openai.responses")


def request(*messages: Message) -> Request:
    paths = tuple(f"input[{place}]" for place in range(len(messages)))
    return Request(model="m", dialect="openai.responses", messages=messages, message_paths=paths)


def said(*parts: Any) -> Message:
    return Message(
        role="assistant", parts=tuple([opaque(part) if isinstance(part, dict) else Text(text=part) for part in parts])
    )


def expanded(asked: Request, results: dict[str, CallResult] | None = None, stays: str = "none") -> Request:
    history = ToolHistory(asked)
    return history.expanded(lambda label, name: f"{label}.{name}", results or {}, lambda label: label == stays)


def shape(asked: Request) -> list[str]:
    """What each message holds: texts, >calls, <results."""
    found = []
    for message in asked.messages or ():
        words = []
        for part in message.parts:
            match part:
                case Text():
                    words.append(part.text)
                case ToolCall():
                    words.append(f">{part.id}")
                case ToolResult(parts=(Text(text=text),)):
                    words.append(f"<{part.call_id} {text}{'!' if part.is_error else ''}")
                case Opaque():
                    words.append(part.type)
        found.append(f"{message.role}: {' '.join(words)}")
    return found


def test_a_call_that_is_approved_after_the_model_said_more_stands_where_the_approval_does() -> None:
    asks = [
        {"type": "mcp_approval_request", "id": f"r{number}", "server_label": "s", "name": "f", "arguments": "{}"}
        for number in (1, 2)
    ]
    answers = [{"type": "mcp_approval_response", "approval_request_id": f"r{n}", "approve": True} for n in (1, 2)]
    first, second = (Message(role="user", parts=(opaque(answer),)) for answer in answers)
    asked = request(said(*asks), first, said(call(1, approval_request_id="r1"), "One."), second)
    assert [pending.request_id for pending in ToolHistory(asked).pending()] == ["r2"]
    assert shape(expanded(asked, {"r2": CallResult("two", is_error=False)})) == [
        "assistant: >mcp_1",
        "tool: <mcp_1 out 1",
        "assistant: One.",
        "assistant: >r2",
        "tool: <r2 two",
    ]
    at_once = request(said(*asks), first, second)
    results = {"r1": CallResult("one", is_error=False), "r2": CallResult("two", is_error=False)}
    assert shape(expanded(at_once, results)) == ["assistant: >r1 >r2", "tool: <r1 one", "tool: <r2 two"]


def test_calls_of_one_turn_stand_together_and_their_results_behind_them() -> None:
    found = expanded(request(said(LIST, "Let me see.", call(1), call(2), "Both.")))
    assert shape(found) == [
        "assistant: Let me see. >mcp_1 >mcp_2",
        "tool: <mcp_1 out 1",
        "tool: <mcp_2 out 2",
        "assistant: Both.",
    ]
    assert found.message_paths == ("input[0]",) * 4
    calls = [part for part in (found.messages or ())[0].parts if isinstance(part, ToolCall)]
    assert [(one.name, one.arguments) for one in calls] == [("s.f", "[1]"), ("s.f", "[2]")]


def test_calls_of_two_turns_stay_two() -> None:
    assert shape(expanded(request(said(call(1), "Then", call(2))))) == [
        "assistant: >mcp_1",
        "tool: <mcp_1 out 1",
        "assistant: Then >mcp_2",
        "tool: <mcp_2 out 2",
    ]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no luck"}]}, "no luck"),
        ({"type": "mcp_protocol_error", "code": 1, "message": "broke off"}, "broke off"),
        ("in words", "in words"),
        (None, "The call was not made."),
    ],
)
def test_a_call_that_failed_tells_why(error: Any, told: str) -> None:
    failed = call(1, output=None, error=error)
    assert shape(expanded(request(said(failed))))[1] == f"tool: <mcp_1 {told}!"


def test_an_approved_call_that_is_still_to_be_made_has_the_result_that_it_gets() -> None:
    asked = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "f", "arguments": "{}"}
    yes = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    whole = request(said(asked), Message(role="user", parts=(opaque(yes),)))
    (pending,) = ToolHistory(whole).pending()
    assert (pending.request_id, pending.label, pending.path) == ("mcpr_1", "s", "input[1]")
    assert shape(expanded(whole, {"mcpr_1": CallResult("done", is_error=False)})) == [
        "assistant: >mcpr_1",
        "tool: <mcpr_1 done",
    ]
    made = request(said(asked), Message(role="user", parts=(opaque(yes),)), said(call(1, approval_request_id="mcpr_1")))
    assert list(ToolHistory(made).pending()) == []
    assert shape(expanded(made)) == ["assistant: >mcp_1", "tool: <mcp_1 out 1"]


def test_items_of_a_server_that_the_target_calls_itself_stay_as_they_came() -> None:
    whole = request(said(LIST, call(1)))
    assert shape(expanded(whole, stays="s")) == ["assistant: mcp_list_tools mcp_call"]
    assert expanded(request(said("hi"))) == request(said("hi"))


def test_a_search_of_which_nothing_is_kept_leaves_no_trace() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "tea"}}
    assert shape(expanded(request(said(search, "Found.")))) == ["assistant: Found."]


def test_what_is_no_item_of_its_type_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidRequest) as caught:
        ToolHistory(request(said("hi"), said(call(1, name=3))))
    assert caught.value.param == "input[1]"


def test_chat_sees_calls_and_results_and_nothing_else_of_this_dialect() -> None:
    other = {"type": "computer_call", "id": "cu_1"}
    found = plain_messages([said(LIST, call(1), other), said(other)])
    assert shape(request(*found)) == ["assistant: >mcp_1", "tool: <mcp_1 out 1"]
