"""Input items in all their shapes, and what is wrong with others, by path."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import (
    Audio,
    CacheHint,
    File,
    Image,
    MediaSource,
    Message,
    Opaque,
    ProviderData,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from adapters.openai.responses.parse import read_body
from tests.adapters.openai.responses.exchange import front_of, responses


def messages_of(*items: Any) -> tuple[Message, ...]:
    found = responses(input=list(items)).request.messages
    assert found is not None
    return found


def test_content_parts_become_parts() -> None:
    (message,) = messages_of(
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"ttl": "5m"}},
                {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
                {"type": "input_image", "file_id": "f1"},
                {"type": "input_file", "file_data": "data:x", "filename": "n.pdf"},
                {"type": "input_file", "file_url": "https://x/y.pdf"},
                {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
            ],
        }
    )
    assert message.parts == (
        Text(
            text="a",
            cache=CacheHint(ttl="5m"),
            provider_data=ProviderData("openai.responses", {"prompt_cache_breakpoint": b'{"ttl": "5m"}'}),
        ),
        Image(source=MediaSource(url="data:image/png;base64,AA"), detail="low"),
        Image(source=MediaSource(file_id="f1")),
        File(source=MediaSource(data="data:x"), filename="n.pdf"),
        File(source=MediaSource(url="https://x/y.pdf")),
        Audio(source=MediaSource(data="AA"), format="wav"),
    )


def test_an_assistants_refusal_annotations_and_phase_are_kept() -> None:
    note = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    content = [{"type": "output_text", "text": "a", "annotations": [note]}, {"type": "refusal", "refusal": "no"}]
    (message,) = messages_of({"role": "assistant", "content": content, "phase": "commentary"})
    assert message.phase == "commentary"
    assert message.parts == (
        Text(text="a", annotations=(json.dumps(note).encode(),), annotated_by="openai.responses"),
        Refusal(text="no"),
    )


def test_custom_calls_and_their_outputs() -> None:
    call, result = messages_of(
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select 1"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "1"},
    )
    assert call.parts == (ToolCall(id="c", name="sql", arguments="select 1", kind="custom"),)
    (found,) = result.parts
    assert isinstance(found, ToolResult)
    assert found.parts == (Text(text="1"),)


def test_a_call_in_a_namespace_has_the_name_of_both() -> None:
    (message,) = messages_of(
        {"type": "function_call", "call_id": "c", "name": "find", "namespace": "crm", "arguments": "{}"}
    )
    (call,) = message.parts
    assert isinstance(call, ToolCall)
    assert call.name == "crm__find"


def test_a_thought_without_text_or_blob_says_nothing() -> None:
    assert messages_of({"role": "user", "content": "x"}, {"type": "reasoning", "id": "rs_1", "summary": []}) == (
        Message(role="user", parts=(Text(text="x"),)),
    )


def test_a_foreign_blob_keeps_its_item_whole() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
    (message,) = messages_of(item)
    assert message.parts == (Opaque(type="reasoning", raw=json.dumps(item).encode(), origin="openai.responses"),)


def test_items_that_the_client_made_are_no_turn_of_the_assistant() -> None:
    found = messages_of(
        {"type": "computer_call", "call_id": "c"},
        {"type": "computer_call_output", "call_id": "c", "output": {}},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
    )
    assert [message.role for message in found] == ["assistant", "user", "user"]


def test_a_reference_is_what_it_refers_to() -> None:
    body = json.dumps({"model": "m", "input": [{"id": "msg_1"}, {"type": "item_reference", "id": "msg_1"}]}).encode()
    references = {"msg_1": b'{"type":"message","role":"user","content":"kept"}'}
    request = read_body(body, max_depth=64).request(front_of().seal, references=references)
    assert request.messages == (Message(role="user", parts=(Text(text="kept"),)),) * 2


def test_a_compaction_is_what_it_holds() -> None:
    seal = front_of().seal
    blob = seal.seal_items([b'{"role":"user","content":"summary"}', b'{"role":"assistant","content":"ok"}'])
    compacted = {"type": "compaction", "encrypted_content": blob}
    assert [message.role for message in messages_of(compacted, {"role": "user", "content": "x"})] == [
        "user",
        "assistant",
        "user",
    ]
    foreign = {"type": "compaction", "encrypted_content": "gAAAA"}
    (message,) = messages_of(foreign)
    assert isinstance(message.parts[0], Opaque)


def test_earlier_chat_messages_stand_before_the_input() -> None:
    earlier = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    request = responses(previous_input_messages=earlier, instructions="be").request
    assert [message.role for message in request.messages or ()] == ["system", "user", "assistant", "user"]
    assert request.message_paths == (
        "instructions",
        "previous_input_messages[0]",
        "previous_input_messages[1]",
        "input",
    )


def test_a_thought_that_was_sealed_comes_back_with_its_maker() -> None:
    thought = Reasoning(text="hm", encrypted="e", origin="up")
    (message,) = messages_of({"type": "reasoning", "encrypted_content": front_of().seal.seal_thought(thought)})
    assert message.parts == (thought,)


EXEC = {"type": "custom", "name": "exec", "description": "Runs it."}
FIND = {"type": "function", "name": "find", "parameters": {"type": "object"}}
DECLARED = {
    "type": "additional_tools",
    "role": "developer",
    "tools": [FIND, {"type": "namespace", "name": "functions", "description": "d", "tools": [EXEC, FIND]}],
}
SEARCHED = {"type": "tool_search_output", "call_id": "s", "execution": "client", "tools": [{**FIND, "name": "late"}]}


def test_tools_that_are_declared_in_the_input_are_tools_of_the_request_each_once() -> None:
    asked = responses(tools=[{**FIND, "strict": True}], input=[DECLARED, SEARCHED, {"role": "user", "content": "x"}])
    tools = asked.request.tools or ()
    assert [(tool.kind, tool.name, tool.in_messages) for tool in tools] == [
        ("function", "find", False),
        ("custom", "functions__exec", True),
        ("function", "functions__find", True),
        ("function", "late", True),
    ]
    where = ("tools[0]", "input[0].tools", "input[0].tools", "input[1].tools")
    assert asked.request.tool_paths == where


def test_an_upstream_of_the_dialect_reads_tools_of_the_input_there_alone() -> None:
    items = [DECLARED, SEARCHED, {"type": "message", "role": "user", "content": "x"}]
    sent = responses(input=items).sent()
    assert (sent["input"], "tools" in sent) == (items, False)


@pytest.mark.parametrize(
    ("items", "path"),
    [
        ([], "input"),
        ([{"type": "additional_tools"}], "input[0].tools"),
        ([{"type": "additional_tools", "tools": [{"type": "function"}]}], "input[0].tools[0].name"),
        ([{}], "input[0].type"),
        ([{"type": 5}], "input[0].type"),
        ([5], "input[0]"),
        ([{"role": "user"}], "input[0].content"),
        ([{"role": "", "content": "x"}], "input[0].role"),
        ([{"role": "user", "content": 5}], "input[0].content"),
        ([{"role": "user", "content": [{"type": "x"}]}], "input[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0]"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "input[0].content[0].input_audio"),
        ([{"type": "function_call", "name": "f"}], "input[0].call_id"),
        ([{"type": "function_call", "call_id": "c"}], "input[0].name"),
        ([{"type": "function_call_output", "call_id": "c"}], "input[0].output"),
        ([{"type": "function_call_output", "output": "x"}], "input[0].call_id"),
        ([{"type": "reasoning", "content": [{"type": "x"}]}], "input[0].content[0].type"),
        ([{"type": "reasoning", "encrypted_content": "gws1.k1.x"}], "input[0].encrypted_content"),
        ([{"type": "compaction", "encrypted_content": "gws1.k1.x"}], "input[0].encrypted_content"),
        ([{"role": "user", "content": "x"}, {"type": "item_reference", "id": "gone"}], "input[1]"),
        ({"role": "user"}, "input"),
        (5, "input"),
    ],
)
def test_what_is_wrong_with_an_item_is_told_by_its_path(items: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        responses(input=items)
    assert caught.value.param == path
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("call_id", [{}, {"call_id": None}])
def test_an_output_that_no_call_asked_for_stays_whole_where_it_names_its_tool(call_id: dict[str, Any]) -> None:
    item = {"type": "function_call_output", "name": "goal", "namespace": "agent", "output": "Win", **call_id}
    exchange = responses(input=[{"role": "user", "content": "a"}, item])
    assert exchange.sent()["input"][-1] == item
    with pytest.raises(InvalidRequest, match="call_id"):
        responses(input=[{"type": "function_call_output", "output": "Win", **call_id}])
