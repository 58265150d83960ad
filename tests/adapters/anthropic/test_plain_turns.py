"""The short way for turns, system prompts and tools gives what the general way gives."""

import orjson
import pytest
from msgspec import Raw

from adapters.anthropic.content import take_messages, take_system
from adapters.anthropic.plain_turns import plain_content, plain_turn
from adapters.anthropic.tools import take_tools
from adapters.canonical.messages import CacheHint, Message, Reasoning, Text, ToolCall, ToolResult
from adapters.canonical.request import Tool
from adapters.json_fields import JsonObject, parse_object

CACHE = {"type": "ephemeral", "ttl": "1h"}
UNKNOWN = {"new_field": 1}
"""What the general way keeps, and the short way does not read."""


def body(**fields: object) -> JsonObject:
    return parse_object(orjson.dumps(fields), max_depth=64)


def turns(*messages: object) -> tuple[Message, ...]:
    return tuple([message for _, message in take_messages(body(messages=messages))])


BLOCKS = [
    {"type": "text", "text": "Hi \u00e9"},
    {"type": "text", "text": "Hi", "cache_control": CACHE},
    {"type": "text", "text": ""},
]
ANSWER = [
    {"type": "thinking", "thinking": "Hm", "signature": "sig"},
    *BLOCKS,
    {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
]
RESULTS = [
    {"type": "tool_result", "tool_use_id": "c1", "content": "done", "is_error": True, "cache_control": CACHE},
    {"type": "tool_result", "tool_use_id": "c2", "content": BLOCKS},
    {"type": "tool_result", "tool_use_id": "c3"},
    {"type": "text", "text": "Go on"},
]
TURNS = [
    {"role": "user", "content": "Hi"},
    {"role": "user", "content": BLOCKS},
    {"role": "assistant", "content": ANSWER},
    {"role": "user", "content": RESULTS},
]


@pytest.mark.parametrize("turn", TURNS)
def test_a_plain_turn_is_the_same_either_way(turn: dict[str, object]) -> None:
    assert plain_turn(Raw(orjson.dumps(turn))) is not None
    general = [Message(role=message.role, parts=message.parts) for message in turns({**turn, **UNKNOWN})]
    assert list(turns(turn)) == general
    other = TURNS[2] if turn["role"] == "user" else TURNS[0]
    assert turns(other, turn) == (*turns(other), *turns(turn))


def test_what_a_plain_turn_says() -> None:
    texts = (Text(text="Hi \u00e9"), Text(text="Hi", cache=CacheHint(ttl="1h")))
    call = ToolCall(id="c1", name="f", arguments='{"a":1}')
    assert [part for message in turns(TURNS[2]) for part in message.parts] == [
        Reasoning(text="Hm", signature="sig"),
        *texts,
        call,
    ]
    assert turns(TURNS[3])[1].parts == (ToolResult(call_id="c2", parts=texts),)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "Hi", "citations": [{"type": "x"}]},
        {"type": "text", "text": "Hi", "cache_control": {"type": "persistent"}},
        {"type": "image", "source": {"type": "url", "url": "https://a.test/b.png"}},
        {"type": "tool_use", "id": "c1", "name": "f", "input": [1]},
        {"type": "tool_use", "id": "", "name": "f", "input": {}},
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "image"}]},
        {"type": "server_tool_use", "id": "c1", "name": "f", "input": {}},
    ],
)
def test_any_other_block_goes_the_general_way(block: object) -> None:
    assert plain_turn(Raw(orjson.dumps({"role": "assistant", "content": [BLOCKS[0], block]}))) is None


@pytest.mark.parametrize("content", [None, [], 5])
def test_a_turn_that_says_nothing_is_left_to_the_general_way(content: object) -> None:
    assert plain_turn(Raw(orjson.dumps({"role": "user", "content": content}))) is None


@pytest.mark.parametrize("system", ["Be brief.", "", BLOCKS])
def test_a_plain_system_prompt_is_the_same_either_way(system: object) -> None:
    assert plain_content(body(system=system), "system") is not None
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    assert isinstance(blocks, list)
    general = take_system(body(system=[*blocks, {"type": "text", "text": "", **UNKNOWN}]))
    assert take_system(body(system=system)) == general


@pytest.mark.parametrize(
    "tool",
    [
        {"name": "f", "input_schema": {"type": "object"}},
        {"type": "custom", "name": "f", "input_schema": {}, "description": "d", "strict": True, "cache_control": CACHE},
    ],
)
def test_a_plain_tool_is_the_same_either_way(tool: dict[str, object]) -> None:
    (found,) = take_tools(body(tools=[tool])) or ()
    (general,) = take_tools(body(tools=[{**tool, **UNKNOWN}])) or ()
    assert general.extras is not None
    assert found == Tool(
        kind="function",
        name=general.name,
        description=general.description,
        parameters=general.parameters,
        strict=general.strict,
        cache=general.cache,
    )
