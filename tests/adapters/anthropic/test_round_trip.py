"""A conversation of three turns with thoughts and parallel calls, through chat clients and Messages clients alike."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapters.origin_marks import marked
from tests.adapters.anthropic.exchange import PROVIDER, Exchange, chat, messages

NAMES = st.text(st.characters(categories=("Ll", "Nd"), max_codepoint=127), min_size=1, max_size=8)
TEXTS = st.text(min_size=1, max_size=20).filter(lambda text: bool(text.strip()))
OBJECTS = st.dictionaries(TEXTS, st.one_of(st.integers(), TEXTS, st.booleans(), st.none()), max_size=3)
THOUGHTS = st.one_of(
    st.builds(
        lambda text, signature: {"type": "thinking", "thinking": text, "signature": signature},
        st.one_of(st.just(""), TEXTS),
        NAMES,
    ),
    st.builds(lambda data: {"type": "redacted_thinking", "data": data}, NAMES),
)


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[dict[str, Any]]:
    """The blocks of an assistant's turn that calls tools: thoughts, perhaps text, calls with ids of their own. No other
    turn of the conversation has this number."""
    blocks = draw(st.lists(THOUGHTS, min_size=1, max_size=2))
    if draw(st.booleans()):
        blocks.append({"type": "text", "text": draw(TEXTS)})
        blocks += draw(st.lists(THOUGHTS, max_size=1))
    ids = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    return [*blocks, *({"type": "tool_use", "id": f"{number}_{i}", "name": "f", "input": draw(OBJECTS)} for i in ids)]


THREE_TURNS = st.tuples(turns(0), turns(1), turns(2)).map(list)


def upstream_body(blocks: list[dict[str, Any]]) -> bytes:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    return json.dumps({**message, "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1}}).encode()


def answer_of(exchange: Exchange, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    events, error = exchange.read_body(upstream_body(blocks))
    assert error is None
    found: dict[str, Any] = json.loads(exchange.answer(events))
    return found


def results_of(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    calls = [block for block in blocks if block["type"] == "tool_use"]
    return [{"type": "tool_result", "tool_use_id": call["id"], "content": "ok"} for call in calls]


@given(THREE_TURNS)
def test_chat_clients_play_every_turn_back_as_it_was_made(made: list[list[dict[str, Any]]]) -> None:
    said: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    expected: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    for blocks in made:
        exchange = chat(messages=said, tools=tools, reasoning_effort="low")
        sent = exchange.sent()
        assert sent["messages"] == expected
        assert sent["thinking"]["type"] == "adaptive"
        message = answer_of(exchange, blocks)["choices"][0]["message"]
        calls = message["tool_calls"]
        said = [*said, message, *({"role": "tool", "tool_call_id": c["id"], "content": "ok"} for c in calls)]
        expected = [
            *expected,
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": results_of(blocks)},
        ]
    assert chat(messages=said, tools=tools).sent()["messages"] == expected


@given(THREE_TURNS)
def test_messages_clients_play_every_turn_back_as_it_was_made(made: list[list[dict[str, Any]]]) -> None:
    said: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    expected = [*said]
    for blocks in made:
        exchange = messages(messages=said, thinking={"type": "enabled", "budget_tokens": 1024})
        sent = exchange.sent()
        assert sent["messages"] == expected
        assert sent["thinking"]["type"] == "enabled"
        content = answer_of(exchange, blocks)["content"]
        assert content == [shown(block) for block in blocks]
        results = {"role": "user", "content": results_of(blocks)}
        said = [*said, {"role": "assistant", "content": content}, results]
        expected = [*expected, {"role": "assistant", "content": blocks}, results]
    assert messages(messages=said).sent()["messages"] == expected


def shown(block: dict[str, Any]) -> dict[str, Any]:
    """A block as the client gets it: its proof says whose it is."""
    if block["type"] == "thinking":
        return {**block, "signature": marked(block["signature"], PROVIDER)}
    if block["type"] == "redacted_thinking":
        return {**block, "data": marked(block["data"], PROVIDER)}
    return block


def test_the_details_of_a_stream_join_to_those_of_the_body() -> None:
    """Clients append the elements of lists, or (as OpenAI's SDK) join them by index."""
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "one", "signature": "S1"},
        {"type": "text", "text": "a"},
        {"type": "redacted_thinking", "data": "D"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {}},
    ]
    exchange = chat(stream=True)
    events, _ = exchange.read_body(upstream_body(blocks))
    found: list[dict[str, Any]] = []
    for frame in exchange.stream(events).split(b"\n\n")[:-2]:
        for choice in json.loads(frame.removeprefix(b"data: "))["choices"]:
            for detail in choice["delta"].get("reasoning_details", ()):
                assert detail["index"] == len(found)
                found.append(detail)
    assert found == answer_of(exchange, blocks)["choices"][0]["message"]["reasoning_details"]
