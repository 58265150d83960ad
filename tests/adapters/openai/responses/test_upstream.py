"""Towards a server of the Responses API: what becomes of a conversation, and what goes back to its maker alone."""

import json
import re
from typing import Any

import pytest

from adapters.canonical.errors import (
    BadUpstreamResponse,
    GatewayError,
    InvalidRequest,
    UnsupportedParameter,
    UpstreamRateLimited,
)
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    ProviderReported,
    ReasoningFinished,
    TextDelta,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import (
    Audio,
    Document,
    File,
    Image,
    MediaSource,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from adapters.canonical.request import ReasoningOptions, Request
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage, usage_of_turns
from adapters.openai.responses.upstream import ResponsesUpstream
from tests.adapters.openai.responses.exchange import PROVIDER, Exchange, responses, sse

UPSTREAM = ResponsesUpstream(PROVIDER)
OWN = Reasoning(summary=("sum",), encrypted="rs_1:BLOB==", origin=PROVIDER)


def sent_of(*messages: Message) -> dict[str, Any]:
    request = Request(model="m", dialect="openai.chat", messages=messages)
    found: dict[str, Any] = json.loads(UPSTREAM.render_request(request))
    return found


def items_of(*parts: Part, role: str = "user", **fields: Any) -> list[Any]:
    found: list[Any] = sent_of(Message(role=role, parts=parts, **fields))["input"]
    return found


def test_a_conversation_becomes_items() -> None:
    sent = sent_of(
        Message(role="system", parts=(Text(text="be"),)),
        Message(role="user", parts=(Text(text="hi"),)),
        Message(
            role="assistant",
            parts=(
                OWN,
                Text(text="Let me."),
                ToolCall(id="c", name="f", arguments="{}"),
                ToolCall(id="d", name="sql", arguments="select 1", kind="custom"),
            ),
        ),
        Message(role="tool", parts=(ToolResult(call_id="c", parts=(Text(text="15"),)),)),
        Message(role="tool", parts=(ToolResult(call_id="d", parts=(Text(text="a"), Text(text="b"))),)),
        Message(role="developer", parts=(Text(text="later"),)),
    )
    assert sent["instructions"] == "be"
    assert sent["store"] is False
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert sent["input"] == [
        {"type": "message", "role": "user", "content": "hi"},
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "sum"}],
            "id": "rs_1",
            "encrypted_content": "BLOB==",
        },
        {"type": "message", "role": "assistant", "content": "Let me."},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "d", "name": "sql", "input": "select 1"},
        {"type": "function_call_output", "call_id": "c", "output": "15"},
        {
            "type": "custom_tool_call_output",
            "call_id": "d",
            "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        },
        {"type": "message", "role": "developer", "content": "later"},
    ]


def test_a_system_message_alone_is_the_input() -> None:
    sent = sent_of(Message(role="system", parts=(Text(text="be"),)))
    assert "instructions" not in sent
    assert sent["input"] == [{"type": "message", "role": "system", "content": "be"}]


def test_media_become_their_parts() -> None:
    (item,) = items_of(
        Text(text="a"),
        Image(source=MediaSource(data="AA", media_type="image/jpeg"), detail="low"),
        Image(source=MediaSource(file_id="f1")),
        File(source=MediaSource(data="QQ", media_type="application/pdf"), filename="n.pdf"),
        File(source=MediaSource(url="https://x/y.pdf")),
        Audio(source=MediaSource(data="AA"), format="wav"),
        Document(text="doc"),
        Document(source=MediaSource(file_id="f2"), title="t"),
    )
    assert item["content"] == [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "detail": "low", "image_url": "data:image/jpeg;base64,AA"},
        {"type": "input_image", "detail": "auto", "file_id": "f1"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,QQ", "filename": "n.pdf"},
        {"type": "input_file", "file_url": "https://x/y.pdf"},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
        {"type": "input_text", "text": "doc"},
        {"type": "input_file", "file_id": "f2", "filename": "t"},
    ]


def test_what_has_no_place_is_refused() -> None:
    with pytest.raises(UnsupportedParameter):
        items_of(Video(source=MediaSource(url="u")))
    with pytest.raises(UnsupportedParameter):
        items_of(Image(source=MediaSource(url="u")), role="assistant")


def test_a_users_name_stands_before_its_text() -> None:
    assert items_of(Text(text="hi"), name="ann")[0]["content"] == [{"type": "input_text", "text": "ann: hi"}]


def test_thoughts_of_others_stay_here_and_plain_ones_go() -> None:
    foreign = Reasoning(signature="s", encrypted="e", origin="claude")
    said = Text(text="x")
    assert [item["type"] for item in items_of(foreign, said, role="assistant")] == ["message"]
    assert [item["type"] for item in items_of(Reasoning(summary=("s",)), said, role="assistant")] == ["message"]
    plain = items_of(Reasoning(text="hm"), said, role="assistant")
    assert plain[0] == {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}


@pytest.mark.parametrize(
    ("model", "read"),
    [
        ("gpt-5.6-sol", False),
        ("openai/o4-mini", False),
        ("codex-mini-latest", False),
        ("gpt-oss-120b", True),
        ("m", True),
    ],
)
def test_models_of_openai_get_no_texts_of_thoughts(model: str, *, read: bool) -> None:
    proved = Reasoning(text="hm", encrypted="rs_1:BLOB==", origin=PROVIDER)
    said = Message(role="assistant", parts=(Reasoning(text="hm"), proved, Text(text="x")))
    request = Request(model=model, dialect="anthropic.messages", messages=(said,))
    sent = json.loads(UPSTREAM.render_request(request))["input"]
    texts = [item.get("content") for item in sent if item["type"] == "reasoning"]
    assert texts == ([[{"type": "reasoning_text", "text": "hm"}]] * 2 if read else [None])


def test_an_item_of_a_hosted_tool_comes_back_byte_for_byte() -> None:
    raw = b'{"type": "web_search_call",  "id": "ws_1", "n": 1.50}'
    request = Request(
        model="m",
        dialect="openai.responses",
        messages=(
            Message(role="assistant", parts=(Opaque(type="web_search_call", raw=raw, origin="openai.responses"),)),
        ),
    )
    assert raw in UPSTREAM.render_request(request)
    with pytest.raises(UnsupportedParameter):
        items_of(Opaque(type="x", raw=raw, origin="anthropic.messages"), role="assistant")


def test_an_item_that_nobody_maps_may_give_any_type_to_a_field() -> None:
    item = {"type": "tool_search_call", "id": "ts_1", "call_id": "c", "arguments": {"q": 1}, "status": "completed"}
    exchange = responses(tools=[{"type": "tool_search"}])
    whole = {"id": "r", "status": "completed", "output": [item]}
    events, error = exchange.read_body(json.dumps(whole).encode())
    assert error is None
    assert json.loads(exchange.answer(events))["output"] == [item]


def test_what_the_upstream_made_goes_round_through_a_responses_client() -> None:
    """A turn with encrypted reasoning, a call in a namespace and a phase, played back by the client."""
    namespace = {
        "type": "namespace",
        "name": "crm",
        "description": "d",
        "tools": [{"type": "function", "name": "find"}],
    }
    asked: dict[str, Any] = {"include": ["reasoning.encrypted_content"], "tools": [namespace]}
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "BLOB==", "later": 1}
    message = {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Looking.", "annotations": []}],
        "phase": "commentary",
    }
    call = {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "c",
        "name": "find",
        "namespace": "crm",
        "arguments": "{}",
    }
    output = [reasoning, message, call]
    body = json.dumps({"id": "resp_up", "status": "completed", "output": output}).encode()
    exchange = responses(**asked)
    events, error = exchange.read_body(body)
    assert error is None
    answer = json.loads(exchange.answer(events))
    follow_up = responses(input=[{"role": "user", "content": "hi"}, *answer["output"]], **asked)
    sent = follow_up.sent()["input"]
    assert sent[1] == {"type": "reasoning", "summary": [], "id": "rs_1", "encrypted_content": "BLOB==", "later": 1}
    assert (sent[2]["phase"], sent[2]["content"]) == ("commentary", "Looking.")
    assert {name: sent[3][name] for name in ("type", "call_id", "name", "namespace", "arguments")} == {
        name: call[name] for name in ("type", "call_id", "name", "namespace", "arguments")
    }
    assert follow_up.sent()["tools"] == [namespace | {"tools": [{"type": "function", "name": "find"}]}]


def test_two_phases_of_one_turn_stay_apart() -> None:
    items = [
        {"role": "assistant", "content": "a", "phase": "commentary"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"role": "assistant", "content": "b", "phase": "final_answer"},
    ]
    sent = responses(input=items).sent()["input"]
    assert [item.get("phase") for item in sent] == ["commentary", None, "final_answer"]
    assert [item.get("content") for item in sent] == ["a", None, "b"]


def test_what_a_model_said_is_a_string_where_it_is_text_alone() -> None:
    assert items_of(Text(text="a"), role="assistant")[0]["content"] == "a"
    note = b'{"type":"url_citation","url":"http://x","title":"X","start_index":0,"end_index":1}'
    cited = Text(text="a", annotations=(note,), annotated_by="openai.responses")
    for parts in ((Text(text="a"), Text(text="b")), (cited,)):
        content = items_of(*parts, role="assistant")[0]["content"]
        assert [part["type"] for part in content] == ["output_text"] * len(parts)


def test_a_foreign_blob_goes_on_untouched() -> None:
    item = {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": "gAAAA"}
    assert responses(input=[item]).sent()["input"] == [item]


def read(*events: dict[str, Any]) -> tuple[list[Event], GatewayError | None]:
    return responses(stream=True).read_stream(sse(*events))


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{}"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": 5},
        {"type": "response.output_item.added", "item": []},
        {"type": "response.completed", "response": "x"},
        {"type": "response.output_item.done", "item": {"type": "function_call", "name": "f"}},
    ],
)
def test_what_breaks_the_protocol_is_the_upstreams_fault(event: dict[str, Any]) -> None:
    _, error = read({"type": "response.output_item.added", "item": {"type": "function_call"}}, event)
    assert isinstance(error, BadUpstreamResponse)


def test_errors_are_told_by_their_code() -> None:
    _, error = read({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None})
    assert isinstance(error, UpstreamRateLimited)
    failed = {"id": "r", "status": "failed", "error": {"code": "invalid_image_url", "message": "no"}}
    _, error = read({"type": "response.failed", "response": failed})
    assert isinstance(error, InvalidRequest)


def test_an_error_behind_events_in_the_same_bytes_comes_after_them() -> None:
    events, error = read(
        {"type": "response.output_text.delta", "delta": "a"}, {"type": "error", "message": "broken", "code": None}
    )
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta(0, 0, "a")]
    assert error is not None
    assert error.message == "broken"


def test_a_chat_client_keeps_encrypted_reasoning_for_the_next_turn() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    chat: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": tools}
    exchange = Exchange(json.dumps({**chat, "reasoning_effort": "low"}).encode())
    output = [
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "BLOB=="},
        {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    ]
    events, _ = exchange.read_body(json.dumps({"id": "r", "status": "completed", "output": output}).encode())
    assert any(isinstance(event, ReasoningFinished) for event in events)
    assert any(isinstance(event, ToolCallStarted) for event in events)
    message = json.loads(exchange.answer(events))["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": "c", "content": "ok"}
    follow_up = Exchange(json.dumps({**chat, "messages": [*chat["messages"], message, result]}).encode())
    assert follow_up.sent()["input"][1] == {
        "type": "reasoning",
        "summary": [],
        "id": "rs_1",
        "encrypted_content": "BLOB==",
    }


def test_a_refusal_of_an_earlier_turn_is_played_back() -> None:
    assert items_of(Refusal(text="no"), role="assistant")[0]["content"] == [{"type": "refusal", "refusal": "no"}]


def test_a_count_takes_what_the_prompt_is_made_of() -> None:
    counted = json.loads(UPSTREAM.render_count(responses(temperature=1, instructions="be", stream=True).request))
    assert set(counted) == {"model", "instructions", "input"}


def test_names_and_ids_that_the_api_forbids_are_sent_as_it_allows_them_and_clients_see_their_own() -> None:
    name, call_id, user = "mcp__files.read " + "x" * 60, "toolu_" + "0" * 80, "user_" + "u" * 150
    chat = {
        "model": "m",
        "user": user,
        "safety_identifier": user,
        "prompt_cache_key": "short",
        "tools": [{"type": "function", "function": {"name": name}}],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": {"name": name}}]},
            {"role": "tool", "tool_call_id": call_id, "content": "ok"},
        ],
    }
    chat["messages"][1]["tool_calls"][0]["function"]["arguments"] = "{}"  # type: ignore[index]
    exchange = Exchange(json.dumps(chat).encode())
    sent = exchange.sent()
    _, call, result = sent["input"]
    assert call["name"] == sent["tools"][0]["name"]
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["name"])
    assert call["call_id"] == result["call_id"]
    assert len(call["call_id"]) <= 64
    assert sent["user"] == sent["safety_identifier"]
    assert len(sent["user"]) <= 64
    assert sent["prompt_cache_key"] == "short"
    item = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": call["name"], "arguments": "{}"}
    events, _ = exchange.read_body(json.dumps({"id": "r", "status": "completed", "output": [item]}).encode())
    assert [event.name for event in events if isinstance(event, ToolCallStarted)] == [name]


def thinking(mode: str) -> Request:
    said = (Message(role="user", parts=(Text(text="hi"),)),)
    return Request(model="m", dialect="anthropic.messages", messages=said, reasoning=ReasoningOptions(mode=mode))


def test_a_mode_of_thinking_that_only_anthropic_knows_is_the_models_own_or_refused() -> None:
    assert "reasoning" not in json.loads(UPSTREAM.render_request(thinking("adaptive")))
    with pytest.raises(UnsupportedParameter, match=r"reasoning\.mode"):
        UPSTREAM.render_request(thinking("between_tools"))
    assert json.loads(UPSTREAM.render_request(thinking("pro")))["reasoning"] == {"mode": "pro"}


def test_what_is_told_beside_the_counts_stands_in_the_usage() -> None:
    exchange = responses()
    said = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12, "cost": 0.01, "num_sources_used": None}
    body = {"id": "r", "status": "completed", "output": [], "usage": said}
    events, error = exchange.read_body(json.dumps(body).encode())
    assert error is None
    found = json.loads(exchange.answer(events))
    assert (found["usage"]["cost"], found["usage"]["input_tokens"]) == (0.01, 10)
    assert "num_sources_used" not in found["usage"]
    assert "usage.cost" not in found
    streamed = json.loads(
        exchange.stream(exchange.read_stream(sse({"type": "response.completed", "response": body}))[0])
        .split(b"data: ")[-2]
        .split(b"\n")[0]
    )
    assert streamed["response"]["usage"] == found["usage"]


def test_what_was_told_beside_the_counts_of_one_turn_is_not_told_of_several() -> None:
    usage = usage_of_turns([Usage(prompt_tokens=1, completion_tokens=1), Usage(prompt_tokens=2, completion_tokens=1)])
    told = ProviderReported({"usage.cost": b"0.01"}, "openai.responses")
    answer = responses().answer([told, UsageReported(usage), ChoiceFinished(0, StopReason.STOP)])
    assert "cost" not in json.loads(answer)["usage"]
