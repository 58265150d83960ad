"""Conversations towards Ollama and from its clients: text, images, thoughts, calls and their results."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.canonical.messages import ASSISTANT, USER, Message, Reasoning, Text, ToolCall, ToolResult
from tests.adapters.ollama.exchange import PROVIDER, Exchange, chat, ollama

PNG = "iVBORw0KGgo="


def said(text: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def messages(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chat(messages=list(rows)).sent()["messages"]
    return found


def test_roles_stay_in_place_and_a_developer_is_the_system() -> None:
    assert messages(said("a", "developer"), said("hi"), said("b", "system"), said("yo", "assistant")) == [
        said("a", "system"),
        said("hi"),
        said("b", "system"),
        said("yo", "assistant"),
    ]


def test_parts_are_one_text_with_images_beside_it_and_names_stand_before_it() -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    parts = [{"type": "text", "text": "a"}, image, {"type": "text", "text": "b"}]
    assert messages({**said(parts), "name": "ann"}) == [{"role": "user", "content": "ann: a\nb", "images": [PNG]}]


def test_results_name_the_tool_and_the_call() -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.5}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}},
    ]
    found = messages(
        said("x"),
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "1"}]},
    )
    assert found[1] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "a", "function": {"name": "f", "arguments": {"x": 1.5}}},
            {"id": "b", "function": {"name": "g", "arguments": {}}},
        ],
    }
    assert found[2:] == [
        {"role": "tool", "content": "2", "tool_name": "g", "tool_call_id": "b"},
        {"role": "tool", "content": "1", "tool_name": "f", "tool_call_id": "a"},
    ]


def test_an_error_of_a_tool_is_told_in_its_text() -> None:
    exchange = chat()
    turns = (
        Message(role=USER, parts=(Text(text="x"),)),
        Message(role=ASSISTANT, parts=(ToolCall(id="a", name="f"),)),
        Message(role="tool", parts=(ToolResult(call_id="a", parts=(Text(text="no"),), is_error=True),)),
    )
    sent = json.loads(exchange.upstream.render_request(replace(exchange.request, messages=turns)))
    assert sent["messages"][2]["content"] == "Error: no"


def test_thoughts_go_back_to_the_provider_that_had_them() -> None:
    exchange = chat()
    for origin, thinking in ((None, "hm"), (PROVIDER, "hm"), ("claude", None)):
        turns = (
            Message(role=USER, parts=(Text(text="x"),)),
            Message(role=ASSISTANT, parts=(Reasoning(text="hm", origin=origin), Text(text="yes"))),
            Message(role=USER, parts=(Text(text="y"),)),
        )
        sent = json.loads(exchange.upstream.render_request(replace(exchange.request, messages=turns)))
        assert sent["messages"][1].get("thinking") == thinking
        assert sent["messages"][1]["content"] == "yes"


NATIVE: list[dict[str, Any]] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "a", "images": [PNG]},
    {
        "role": "assistant",
        "content": "I look.",
        "thinking": "hm",
        "tool_calls": [
            {"function": {"name": "f", "arguments": {"x": 1.5}}},
            {"function": {"name": "g", "arguments": {}}},
            {"id": "call_1", "function": {"name": "f", "arguments": {}}},
        ],
    },
    {"role": "tool", "content": "1", "tool_name": "f"},
    {"role": "tool", "content": "2", "tool_name": "f", "tool_call_id": "call_1"},
    {"role": "tool", "content": "3", "tool_name": "g"},
    {"role": "assistant", "content": "done"},
    {"role": "user", "content": "thanks"},
]


def test_a_conversation_of_ollamas_own_clients_passes_as_it_came() -> None:
    exchange = ollama(messages=NATIVE)
    assert exchange.sent()["messages"] == NATIVE
    assert exchange.upstream.render_request(exchange.request) == exchange.upstream.render_request(exchange.request)


def test_calls_and_results_without_ids_belong_together_for_other_targets() -> None:
    asked = ollama(messages=NATIVE).request.messages
    assert asked is not None
    calls = [part.id for part in asked[2].parts if isinstance(part, ToolCall)]
    assert calls == ["gwcall_2_0", "gwcall_2_1", "call_1"]
    answered = [part.call_id for message in asked for part in message.parts if isinstance(part, ToolResult)]
    assert answered == ["gwcall_2_0", "call_1", "gwcall_2_1"]


def test_a_result_may_name_its_tool_as_older_examples_do() -> None:
    rows = [NATIVE[1], NATIVE[2], {"role": "tool", "content": "3", "name": "g"}, {"role": "tool", "content": "1"}]
    asked = ollama(messages=rows).request.messages
    assert asked is not None
    answered = [part.call_id for message in asked for part in message.parts if isinstance(part, ToolResult)]
    assert answered == ["gwcall_1_1", "gwcall_1_0"]
    assert [message.extras for message in asked] == [None] * 4


def test_a_result_that_names_nothing_answers_the_first_open_call() -> None:
    rows = [NATIVE[1], NATIVE[2], {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}]
    asked = ollama(messages=rows).request.messages
    assert asked is not None
    answered = [part.call_id for message in asked for part in message.parts if isinstance(part, ToolResult)]
    assert answered == ["gwcall_1_0", "gwcall_1_1"]


TEXTS = st.text(min_size=1, max_size=20)
OBJECTS = st.dictionaries(TEXTS, st.one_of(st.integers(-(2**53), 2**53), TEXTS, st.none()), max_size=3)


@st.composite
def turns(draw: st.DrawFn) -> dict[str, Any]:
    """A message of the model that calls tools."""
    names = draw(st.lists(st.sampled_from(["f", "g"]), min_size=1, max_size=3))
    calls = [{"function": {"name": name, "arguments": draw(OBJECTS)}} for name in names]
    found: dict[str, Any] = {"role": "assistant", "content": draw(st.one_of(st.just(""), TEXTS)), "tool_calls": calls}
    if draw(st.booleans()):
        found["thinking"] = draw(TEXTS)
    return found


@given(st.lists(turns(), min_size=3, max_size=3))
def test_chat_clients_play_every_turn_back_as_it_was_made(made: list[dict[str, Any]]) -> None:
    rows: list[dict[str, Any]] = [said("go")]
    expected: list[dict[str, Any]] = [said("go")]
    for turn in made:
        exchange = chat(messages=rows)
        assert exchange.sent()["messages"] == expected
        message = json.loads(exchange.answer(events_of(exchange, turn)))["choices"][0]["message"]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in message["tool_calls"]]
        rows = [*rows, message, *results]
        expected = [*expected, turn, *answers(turn)]
    assert chat(messages=rows).sent()["messages"] == expected


@given(st.lists(turns(), min_size=3, max_size=3))
def test_ollamas_clients_play_every_turn_back_as_it_was_made(made: list[dict[str, Any]]) -> None:
    rows: list[dict[str, Any]] = [said("go")]
    expected: list[dict[str, Any]] = [said("go")]
    for turn in made:
        exchange = ollama(messages=rows)
        assert exchange.sent()["messages"] == expected
        message = json.loads(exchange.answer(events_of(exchange, turn)))["message"]
        rows = [*rows, message, *answers(turn)]
        expected = [*expected, turn, *answers(turn)]
    assert ollama(messages=rows).sent()["messages"] == expected


def events_of(exchange: Exchange, turn: dict[str, Any]) -> Any:
    body = {"model": "m", "message": turn, "done": True, "done_reason": "stop"}
    events, error = exchange.read_body(json.dumps(body).encode())
    assert error is None
    return events


def answers(turn: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "tool", "content": "ok", "tool_name": call["function"]["name"]} for call in turn["tool_calls"]]
