"""Conversations of three turns with thoughts, signatures and parallel calls, through clients of three dialects."""

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.anthropic.front import MessagesFront
from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import Reasoning, Text, ToolCall, ToolResult
from adapters.canonical.result import fold
from adapters.front import AnswerHead
from adapters.gemini.upstream import GenerateUpstream
from adapters.openai.chat.upstream import ChatUpstream
from adapters.origin_marks import marked
from tests.adapters.gemini.exchange import PROVIDER, Exchange, chat, generate

SIGNATURES = st.text(st.characters(categories=("Lu", "Nd"), max_codepoint=127), min_size=1, max_size=8)
TEXTS = st.text(min_size=1, max_size=20).filter(lambda text: bool(text.strip()))
OBJECTS = st.dictionaries(TEXTS, st.one_of(st.integers(-(2**53), 2**53), TEXTS, st.none()), max_size=3)
NUMBERS = count(1)


@st.composite
def turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The parts of a turn that calls tools: perhaps a thought, perhaps text, and calls, the first of them signed."""
    parts: list[dict[str, Any]] = []
    if draw(st.booleans()):
        parts.append({"text": draw(TEXTS), "thought": True})
    if draw(st.booleans()):
        parts.append({"text": draw(TEXTS)})
    number = draw(st.integers(1, 3))
    calls: list[dict[str, Any]] = [{"functionCall": {"name": "f", "args": draw(OBJECTS)}} for _ in range(number)]
    if draw(st.booleans()):
        for call in calls:
            call["functionCall"] = {"id": f"id{next(NUMBERS)}", **call["functionCall"]}
    calls[0]["thoughtSignature"] = draw(SIGNATURES)
    return parts + calls


def body(parts: list[dict[str, Any]]) -> bytes:
    candidate = {"content": {"parts": parts, "role": "model"}, "finishReason": "STOP", "index": 0}
    return json.dumps({"candidates": [candidate]}).encode()


def results_of(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    ids: list[dict[str, Any]] = [{"id": call["id"]} if "id" in call else {} for call in calls]
    return [{"functionResponse": {**one, "name": "f", "response": {"output": "ok"}}} for one in ids]


def without_thoughts(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is sent back of them for clients of other dialects: the signature stands for the text."""
    return [part for part in parts if not part.get("thought")]


GO = {"role": "user", "parts": [{"text": "go"}]}


@given(st.lists(turns(), min_size=3, max_size=3))
def test_geminis_clients_play_every_turn_back_as_it_was_made(made: list[list[dict[str, Any]]]) -> None:
    said: list[dict[str, Any]] = [GO]
    expected: list[dict[str, Any]] = [GO]
    for parts in made:
        exchange = generate(contents=said)
        assert exchange.sent()["contents"] == expected
        events, error = exchange.read_body(body(parts))
        assert error is None
        found = json.loads(exchange.answer(events))["candidates"][0]["content"]
        said = [*said, found, {"role": "user", "parts": results_of(found["parts"])}]
        expected = [*expected, {"role": "model", "parts": parts}, {"role": "user", "parts": results_of(parts)}]
    assert generate(contents=said).sent()["contents"] == expected


@given(st.lists(turns(), min_size=3, max_size=3))
def test_chat_clients_play_every_signature_back_in_its_part(made: list[list[dict[str, Any]]]) -> None:
    said: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    expected: list[dict[str, Any]] = [GO]
    for parts in made:
        exchange = chat(messages=said)
        assert exchange.sent()["contents"] == expected
        events, error = exchange.read_body(body(parts))
        assert error is None
        message = json.loads(exchange.answer(events))["choices"][0]["message"]
        calls = message["tool_calls"]
        said = [*said, message, *({"role": "tool", "tool_call_id": c["id"], "content": "ok"} for c in calls)]
        expected = [
            *expected,
            {"role": "model", "parts": without_thoughts(parts)},
            {"role": "user", "parts": results_of(parts)},
        ]
    assert chat(messages=said).sent()["contents"] == expected


@given(st.lists(turns(), min_size=3, max_size=3))
def test_messages_clients_play_every_signature_back_in_its_part(made: list[list[dict[str, Any]]]) -> None:
    ids = count(1)
    front, upstream = MessagesFront(), GenerateUpstream(PROVIDER, new_id=lambda: f"gwcall_{next(ids)}")
    said: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    expected: list[dict[str, Any]] = [GO]

    def sent() -> Any:
        raw = json.dumps({"model": "gemini-3-pro", "max_tokens": 9, "messages": said}).encode()
        return front.parse(raw, max_depth=64)

    for parts in made:
        request = sent()
        assert json.loads(upstream.render_request(request))["contents"] == expected
        result = fold(upstream.parse_body(request, body(parts)))
        content = json.loads(front.render_result(request, result, AnswerHead("m", 1, "m")))["content"]
        calls = [block for block in content if block["type"] == "tool_use"]
        answers = [{"type": "tool_result", "tool_use_id": block["id"], "content": "ok"} for block in calls]
        said = [*said, {"role": "assistant", "content": content}, {"role": "user", "content": answers}]
        expected = [
            *expected,
            {"role": "model", "parts": without_thoughts(parts)},
            {"role": "user", "parts": results_of(parts)},
        ]
    assert json.loads(upstream.render_request(sent()))["contents"] == expected


@given(turns(), st.integers(1, 400))
def test_a_stream_of_single_parts_says_what_the_body_says(parts: list[dict[str, Any]], cut: int) -> None:
    chunks: list[dict[str, Any]] = [{"candidates": [{"content": {"parts": [part]}, "index": 0}]} for part in parts]
    chunks.append({"candidates": [{"finishReason": "STOP", "index": 0}]})
    stream = b"".join([b"data: %b\r\n\r\n" % json.dumps(chunk).encode() for chunk in chunks])
    streamed, error = Exchange(json.dumps({"contents": [GO]}).encode()).read_stream(stream[:cut], stream[cut:])
    assert error is None
    whole, error = Exchange(json.dumps({"contents": [GO]}).encode()).read_body(body(parts))
    assert error is None
    assert fold(streamed) == replace(fold(whole), usage=fold(streamed).usage)


def test_answers_under_ids_of_their_own_belong_to_the_calls_of_their_names_that_have_none() -> None:
    def answer(name: str, call_id: str) -> dict[str, Any]:
        return {"functionResponse": {"id": call_id, "name": name, "response": {"output": call_id}}}

    calls: list[dict[str, Any]] = [{"functionCall": {"name": name, "args": {}}} for name in ("f", "g", "f")]
    calls.append({"functionCall": {"id": "own", "name": "f", "args": {}}})
    answers = [answer("g", "g-1"), answer("f", "f-1"), answer("f", "own"), answer("f", "f-2")]
    said = [GO, {"role": "model", "parts": calls}, {"role": "user", "parts": answers}]
    sent = json.loads(ChatUpstream().render_request(generate(contents=said).request))["messages"]
    made = [call["id"] for call in sent[1]["tool_calls"]]
    told = {message["tool_call_id"]: message["content"] for message in sent[2:]}
    assert [told[call] for call in made] == ["f-1", "g-1", "f-2", "own"]
    with pytest.raises(InvalidRequest):
        generate(contents=[*said[:2], {"role": "user", "parts": [*answers, answer("f", "f-3")]}])


def test_a_turn_that_a_client_kept_chunk_by_chunk_is_one() -> None:
    """Chats of Google's SDKs keep each chunk of a stream as a content of its own, and may answer each call in one."""
    chunks: list[dict[str, Any]] = [
        {"text": "Let me", "thought": True},
        {"text": " think", "thought": True},
        {"text": "", "thought": True, "thoughtSignature": marked("S", "claude")},
        {"text": "I lo"},
        {"text": "ok"},
        {"functionCall": {"id": "a", "name": "f", "args": {}}},
        {"functionCall": {"name": "g", "args": {}}},
        {"text": ""},
    ]
    answers = [{"name": name, "response": {"output": name}} for name in ("f", "g")]
    turns: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "x"}]}]
    turns += [{"role": "model", "parts": [chunk]} for chunk in chunks]
    turns += [{"role": "user", "parts": [{"functionResponse": answered}]} for answered in answers]
    messages = generate(contents=turns).request.messages
    assert messages is not None
    assert [replace(part, provider_data=None) for part in messages[1].parts] == [
        Reasoning(text="Let me think", signature="S", origin="claude"),
        Text(text="I look"),
        ToolCall(id="a", name="f", arguments="{}"),
        ToolCall(id="gwcall_7_0", name="g", arguments="{}"),
    ]
    results = [part for message in messages[2:] for part in message.parts]
    assert [part.call_id for part in results if isinstance(part, ToolResult)] == ["a", "gwcall_7_0"]
