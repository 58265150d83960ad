from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest
from tests.adapters.cohere.exchange import chat

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in "fg"]


def call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def test_what_is_said_beside_calls_is_a_plan_and_results_are_messages() -> None:
    messages = [
        {"role": "developer", "content": "be"},
        {"role": "user", "name": "ann", "content": "go"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call("a", '{"x": 1.0}'), call("b", "")]},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
    ]
    assert chat(messages=messages, tools=TOOLS).sent()["messages"] == [
        {"role": "system", "content": "be"},
        {"role": "user", "content": "ann: go"},
        {
            "role": "assistant",
            "tool_calls": [call("a", '{"x": 1.0}'), call("b", "{}")],
            "tool_plan": "Let me see.",
        },
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
    ]


def test_a_result_that_answers_nothing_is_refused_by_id() -> None:
    with pytest.raises(InvalidRequest, match="'zz'"):
        chat(messages=[{"role": "tool", "tool_call_id": "zz", "content": "x"}]).sent()


def test_sampling_has_cohere_s_names() -> None:
    body = chat(
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        seed=1,
        stop=["x"],
        frequency_penalty=0.1,
        presence_penalty=0.2,
    ).sent()
    assert {name: value for name, value in body.items() if name not in ("model", "messages", "stream")} == {
        "max_tokens": 9,
        "temperature": 0.5,
        "p": 0.9,
        "k": 5,
        "seed": 1,
        "stop_sequences": ["x"],
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
    }


@pytest.mark.parametrize(
    ("choice", "names", "word"),
    [
        ("auto", ["f", "g"], None),
        ("none", ["f", "g"], "NONE"),
        ("required", ["f", "g"], "REQUIRED"),
        ({"type": "function", "function": {"name": "g"}}, ["g"], "REQUIRED"),
    ],
)
def test_one_tool_is_forced_by_being_the_only_one(choice: Any, names: list[str], word: str | None) -> None:
    body = chat(tools=TOOLS, tool_choice=choice).sent()
    assert [tool["function"]["name"] for tool in body["tools"]] == names
    assert body.get("tool_choice") == word


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
            {"type": "json_object", "json_schema": {"type": "object"}},
        ),
    ],
)
def test_a_structured_answer_is_json_with_or_without_a_schema(wanted: Any, expected: Any) -> None:
    assert chat(response_format=wanted).sent()["response_format"] == expected


@pytest.mark.parametrize(("effort", "expected"), [("none", {"type": "disabled"}), ("high", {"type": "enabled"})])
def test_effort_switches_thinking(effort: str, expected: Any) -> None:
    assert chat(reasoning_effort=effort).sent()["thinking"] == expected


def test_images_go_by_address_or_as_data() -> None:
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
    ]
    assert chat(messages=[{"role": "user", "content": parts}]).sent()["messages"][0]["content"] == parts
