"""The short way for chat messages gives what the general way gives."""

import orjson
import pytest
from msgspec import Raw

from adapters.canonical.messages import Message
from adapters.json_fields import parse_object
from adapters.openai.content import parse_message, parse_messages
from adapters.openai.plain_messages import plain_message

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
PLAIN = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": ""}]},
    {"role": "user", "content": "Hi \u00e9"},
    {"role": "user", "content": ""},
    {"role": "assistant", "content": "Hello"},
    {"role": "assistant", "content": None},
    {"role": "assistant", "content": ""},
    {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]},
    {"role": "assistant", "tool_calls": [CALL]},
    {
        "role": "assistant",
        "content": "x",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    },
    {"role": "tool", "tool_call_id": "c1", "content": "done"},
    {"role": "tool", "tool_call_id": "c1", "content": ""},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "done"}]},
]
OTHER = [
    {"role": "user", "content": "Hi", "name": "ann"},
    {"role": "user", "content": "Hi", "refusal": None},
    {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}]},
    {"role": "assistant", "content": "Hi", "reasoning_content": "Hm"},
    {"role": "assistant", "content": "Hi", "annotations": [{"type": "url_citation"}]},
    {"role": "assistant", "tool_calls": [{**CALL, "extra_content": {"a": 1}}]},
    {"role": "assistant", "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "f", "input": "x"}}]},
    {"role": "critic", "content": "Hi"},
]


def general(message: object) -> Message:
    return parse_message(parse_object(orjson.dumps(message), max_depth=64))


@pytest.mark.parametrize("message", PLAIN)
def test_a_plain_message_is_the_same_either_way(message: object) -> None:
    assert plain_message(Raw(orjson.dumps(message))) == general(message)


@pytest.mark.parametrize("message", OTHER)
def test_anything_else_goes_the_general_way(message: object) -> None:
    assert plain_message(Raw(orjson.dumps(message))) is None
    body = parse_object(orjson.dumps({"messages": [PLAIN[0], message, PLAIN[-1]]}), max_depth=64)
    assert parse_messages(body) == (general(PLAIN[0]), general(message), general(PLAIN[-1]))


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant"},
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "user", "content": []},
        {"role": "tool", "content": "x"},
        {"role": "tool", "tool_call_id": "", "content": "x"},
        {"role": "assistant", "tool_calls": [{**CALL, "id": ""}]},
        {"content": "x"},
    ],
)
def test_what_is_wrong_is_left_to_the_general_way(message: object) -> None:
    assert plain_message(Raw(orjson.dumps(message))) is None
