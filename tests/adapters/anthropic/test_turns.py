"""What Anthropic is sent of a conversation: the system prompt, turns, calls with their results, thoughts, media."""

import base64
import json
from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.openai.chat.upstream import ChatUpstream
from tests.adapters.anthropic.exchange import PROVIDER, chat, messages

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
PDF = base64.b64encode(b"%PDF-1.7\n" + bytes(16)).decode()


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def calls(*ids: str, **more: Any) -> dict[str, Any]:
    found = [{"id": i, "type": "function", "function": {"name": "f", "arguments": '{"n":1}'}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": found, **more}


def result(call_id: str, content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def sent(*said: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chat(messages=list(said), **fields).sent()["messages"]
    return found


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_leading_instructions_are_the_system_prompt_in_their_order() -> None:
    body = chat(
        messages=[{"role": "system", "content": "Be kind."}, {"role": "developer", "content": "Rhyme."}, user("hi")]
    ).sent()
    assert body["system"] == [text("Be kind."), text("Rhyme.")]
    assert body["messages"] == [user("hi")]
    assert chat(messages=[{"role": "system", "content": "Be kind."}, user("hi")]).sent()["system"] == "Be kind."


def test_a_later_instruction_stays_in_its_place_as_marked_text() -> None:
    assert sent(user("a"), {"role": "system", "content": "Now rhyme."}, user("b")) == [
        user([text("a"), text("<system>\nNow rhyme.\n</system>"), text("b")])
    ]


def test_a_later_system_message_of_this_dialect_stays_what_it_is() -> None:
    said = [user("a"), {"role": "assistant", "content": "b"}, {"role": "system", "content": "c"}, user("d")]
    assert messages(messages=said).sent()["messages"] == said


@pytest.mark.parametrize(
    "system",
    [
        {"role": "system", "content": "Be brief.", "clear_at": "next_user_message"},
        {"role": "system", "content": [], "output_config": {"effort": "low"}},
        {"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}]},
    ],
    ids=lambda said: next(reversed(said)),
)
def test_what_a_system_message_of_this_dialect_says_goes_with_it_alone(system: dict[str, Any]) -> None:
    said = [user("a"), {"role": "assistant", "content": "b"}, user("c"), system, {"role": "system", "content": "d"}]
    assert messages(messages=said).sent()["messages"] == said


def test_turns_of_one_role_that_follow_each_other_are_one() -> None:
    said = (user("a"), user("b"), {"role": "assistant", "content": "c"}, {"role": "assistant", "content": "d"})
    assert sent(*said, user("e")) == [
        user([text("a"), text("b")]),
        {"role": "assistant", "content": [text("c"), text("d")]},
        user("e"),
    ]


def test_text_that_says_nothing_is_left_out() -> None:
    assert sent(user("a"), {"role": "assistant", "content": " "}, user([text(""), text("b")])) == [
        user([text("a"), text("b")])
    ]


def test_the_name_of_a_user_stands_before_what_it_said() -> None:
    assert sent(user("hi", name="ann"), user("yo", name="bob")) == [user([text("ann: hi"), text("bob: yo")])]


def test_a_conversation_without_a_turn_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="beside the system's"):
        sent({"role": "system", "content": "x"})


def test_all_results_of_a_turn_stand_first_in_the_next_one() -> None:
    turns = sent(user("go"), calls("a", "b", "c"), result("b"), user("wait"), result("a"), result("c", [text("x")]))
    assert turns[1]["content"] == [
        {"type": "tool_use", "id": call_id, "name": "f", "input": {"n": 1}} for call_id in ("a", "b", "c")
    ]
    assert turns[2] == user(
        [
            {"type": "tool_result", "tool_use_id": "b", "content": "ok"},
            {"type": "tool_result", "tool_use_id": "a", "content": "ok"},
            {"type": "tool_result", "tool_use_id": "c", "content": "x"},
            text("wait"),
        ]
    )
    assert len(turns) == 3


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ([user("x"), calls("a", "b"), result("a")], "'b' has no result"),
        ([user("x"), calls("a", "b"), result("a"), user("y"), calls("c"), result("c")], "'b' has no result"),
        ([user("x"), calls("a")], "'a' has no result"),
        ([user("x"), calls("a"), user("y"), calls("b"), result("a"), result("b")], "'a' has no result"),
        ([user("x"), result("z")], "'z' answers no call"),
        ([user("x"), calls("a"), result("a"), result("z")], "'z' answers no call"),
        ([user("x"), calls("a"), result("a"), result("a")], "'a' has two results"),
        ([result("z"), user("x")], "'z' answers no call"),
    ],
)
def test_a_call_and_a_result_that_do_not_match_are_refused_by_id(said: list[dict[str, Any]], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint) as caught:
        sent(*said)
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("arguments", "outgoing"),
    [('{"city": "Oslo"}', b'{"city": "Oslo"}'), ("", b"{}"), ("{}", b"{}"), ('{"n":1e400}', b'{"n":1e400}')],
)
def test_arguments_become_the_object_that_they_are(arguments: str, outgoing: bytes) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    exchange = chat(messages=[user("x"), {"role": "assistant", "tool_calls": [call]}, result("a")])
    assert b'"input":' + outgoing in exchange.upstream.render_request(exchange.request)


@pytest.mark.parametrize("arguments", ["{", "[]", '"x"', "nothing"])
def test_arguments_that_are_no_object_are_refused_by_the_calls_id(arguments: str) -> None:
    call = {"id": "call_7", "type": "function", "function": {"name": "f", "arguments": arguments}}
    with pytest.raises(InvalidRequest, match="'call_7'"):
        sent(user("x"), {"role": "assistant", "tool_calls": [call]}, result("call_7"))


def test_images_go_by_what_they_are() -> None:
    def source(url: str) -> Any:
        (turn,) = sent(user([{"type": "image_url", "image_url": {"url": url}}]))
        return turn["content"][0]["source"]

    data = {"type": "base64", "media_type": "image/png", "data": PNG}
    assert source(f"data:image/png;base64,{PNG}") == data
    assert source(f"data:image/jpeg;base64,{PNG}") == data, "what the bytes say counts"
    assert source("https://a.example/x.png") == {"type": "url", "url": "https://a.example/x.png"}
    for wrong in ("data:image/png;base64,???", "data:image/png,abc", "data:image/bmp;base64,QUJDREVGR0g="):
        with pytest.raises(InvalidRequest, match="messages"):
            source(wrong)


def test_a_file_is_a_document() -> None:
    file = {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a.pdf"}}
    (turn,) = sent(user([file, text("Read.")]))
    block = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}}
    assert turn["content"] == [{**block, "title": "a.pdf"}, text("Read.")]
    plain = base64.b64encode("Grüße".encode()).decode()
    (turn,) = sent(user([{"type": "file", "file": {"file_data": f"data:text/plain;base64,{plain}"}}]))
    assert turn["content"][0]["source"] == {"type": "text", "media_type": "text/plain", "data": "Grüße"}
    with pytest.raises(UnsupportedParameter, match="PDF"):
        sent(user([{"type": "file", "file": {"file_data": "data:application/zip;base64,UEsDBA=="}}]))


def test_a_part_that_anthropic_has_no_form_for_is_refused() -> None:
    with pytest.raises(UnsupportedParameter, match="opaque"):
        sent(user([{"type": "some_part", "x": 1}]))


@pytest.mark.parametrize(
    "content",
    [
        [text("a") | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}, text("b")],
        [{"type": "image", "source": {"type": "url", "url": "https://a.example"}, "transformations": {}}, text("b")],
        [{"type": "image", "source": {"type": "file", "file_id": "file_1"}}, text("b")],
        [{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}}, text("b")],
        [{"type": "document", "source": {"type": "url", "url": "https://a.example/a.pdf"}, "title": "T"}, text("b")],
        [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}, text("b")],
        [
            {
                "type": "document",
                "source": {"type": "file", "file_id": "file_1"},
                "title": "T",
                "context": "C",
                "citations": {"enabled": True},
            },
            text("b"),
        ],
        [{"type": "document", "source": {"type": "content", "content": "c"}}, text("b")],
        [{"type": "search_result", "source": "s", "title": "t", "content": [text("r")]}, text("b")],
        [{"type": "container_upload", "file_id": "file_1"}, text("b")],
    ],
)
def test_blocks_of_a_user_go_to_anthropic_as_they_came(content: Any) -> None:
    assert messages(messages=[user(content)]).sent()["messages"] == [user(content)]


def test_an_assistants_turn_goes_back_byte_by_byte() -> None:
    content = (
        b'[{"type":"thinking","thinking":"h\xc3\xbcm \\u2028","signature":"SIG+/=="},'
        b'{"type":"redacted_thinking","data":"R+/"},'
        b'{"type":"text","text":"So","citations":[{"type":"char_location","start_char_index":1}]},'
        b'{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q": 1.50}},'
        b'{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]},'
        b'{"type":"thinking","thinking":"","signature":"OMITTED"},'
        b'{"type":"tool_use","id":"toolu_1","name":"f","input":{"n": 12345678901234567890123}}]'
    )
    body = (
        b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":%b},'
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"ok","is_error":true}]}]}'
    )
    exchange = messages()
    request = exchange.front.parse(body % content, max_depth=64)
    outgoing = exchange.upstream.render_request(request)
    assert b'"input":{"n": 12345678901234567890123}' in outgoing
    assert b'{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q": 1.50}}' in outgoing
    assert json.loads(outgoing)["messages"] == json.loads(body % content)["messages"]


THOUGHT = {"type": "reasoning.text", "text": "hm", "signature": "S1", "index": 0, "origin": PROVIDER}
HIDDEN = {"type": "reasoning.encrypted", "data": "D", "index": 1, "origin": PROVIDER, "position": 2}


def assistant_of(*said: dict[str, Any], **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The body, and the last assistant turn in it."""
    body = chat(messages=list(said), **fields).sent()
    return body, [turn for turn in body["messages"] if turn["role"] == "assistant"][-1]


def test_signed_thoughts_go_back_whole_and_where_they_stood() -> None:
    replayed = calls("a", reasoning_content="hm", reasoning_details=[THOUGHT, HIDDEN]) | {"content": "Look:"}
    body, turn = assistant_of(user("x"), replayed, result("a"), tools=[TOOL], reasoning_effort="low")
    assert [block["type"] for block in turn["content"]] == ["thinking", "text", "redacted_thinking", "tool_use"]
    assert turn["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "S1"}
    assert turn["content"][2] == {"type": "redacted_thinking", "data": "D"}
    assert body["thinking"]["type"] == "adaptive"


def test_thoughts_of_another_provider_stay_here_and_thinking_is_off_where_a_turn_must_begin_with_one() -> None:
    replayed = calls("a", reasoning_content="hm", reasoning_details=[THOUGHT | {"origin": "another"}])
    models = {"claude-sonnet-4-5": "disabled", "claude-opus-5": "adaptive", "of-tomorrow": "disabled"}
    for model, expected in models.items():
        body, turn = assistant_of(user("x"), replayed, result("a"), tools=[TOOL], reasoning_effort="low", model=model)
        assert [block["type"] for block in turn["content"]] == ["tool_use"]
        assert body["thinking"]["type"] == expected


@pytest.mark.parametrize(("thoughts", "expected"), [(["a"], "enabled"), (["b"], "disabled")])
def test_calls_in_a_row_are_one_turn_whose_first_message_alone_has_to_begin_with_a_thought(
    thoughts: list[str], expected: str
) -> None:
    said = [calls(name, **({"reasoning_details": [THOUGHT]} if name in thoughts else {})) for name in ("a", "b")]
    rest = [said[0], result("a"), said[1], result("b")]
    body, _ = assistant_of(user("x"), *rest, tools=[TOOL], reasoning_effort="low", model="claude-sonnet-4-5")
    assert body["thinking"]["type"] == expected


def test_thoughts_without_a_signature_stay_here() -> None:
    body, turn = assistant_of(
        user("x"), {"role": "assistant", "content": "y", "reasoning_content": "hm"}, user("z"), reasoning_effort="low"
    )
    assert turn["content"] == "y"
    assert body["thinking"]["type"] == "adaptive", "a turn of the user is no tool loop"


def test_at_most_four_cache_breakpoints_are_sent_the_systems_and_the_newest() -> None:
    hint = {"cache_control": {"type": "ephemeral"}}
    blocks = [text(str(number)) | hint for number in range(5)]
    body = messages(
        system=[text("s") | hint],
        tools=[{"name": "f", "input_schema": {"type": "object"}} | hint],
        messages=[user(blocks)],
    ).sent()
    assert "cache_control" in body["system"][0]
    assert "cache_control" in body["tools"][0]
    assert ["cache_control" in block for block in body["messages"][0]["content"]] == [False] * 3 + [True] * 2
    body = messages(cache_control={"type": "ephemeral"}, messages=[user(blocks)]).sent()
    assert ["cache_control" in block for block in body["messages"][0]["content"]] == [False] * 2 + [True] * 3


@pytest.mark.parametrize(
    ("field", "outgoing"),
    [
        ({"cache_control": {"type": "ephemeral"}}, {"type": "ephemeral"}),
        ({"cache_control": {"type": "ephemeral", "ttl": "5m"}}, {"type": "ephemeral", "ttl": "5m"}),
        ({"prompt_cache_breakpoint": {"mode": "explicit"}}, {"type": "ephemeral"}),
        ({"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}, {"type": "ephemeral", "ttl": "1h"}),
    ],
)
def test_cache_hints_of_chat_parts_are_breakpoints(field: dict[str, Any], outgoing: dict[str, Any]) -> None:
    (turn,) = sent(user([text("long") | field, text("short")]))
    assert turn["content"] == [text("long") | {"cache_control": outgoing}, text("short")]


def test_the_same_request_gives_the_same_bytes() -> None:
    exchange = chat(messages=[user("x"), calls("a"), result("a")], tools=[TOOL])
    assert exchange.upstream.render_request(exchange.request) == exchange.upstream.render_request(exchange.request)


def test_cache_hints_of_messages_and_of_tools_are_hints_as_those_of_parts_are() -> None:
    hint = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    marked = {**hint, "type": "text"}
    found = chat(
        messages=[{"role": "system", "content": "be", **hint}, user("hi", **hint), calls("a"), result("a") | hint],
        tools=[
            {**TOOL, **hint},
            {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}, **hint}},
        ],
    ).sent()
    assert found["system"] == [{**marked, "text": "be"}]
    assert [tool["cache_control"] for tool in found["tools"]] == [hint["cache_control"]] * 2
    last = found["messages"][-1]["content"][0]
    assert (last["type"], last["cache_control"]) == ("tool_result", hint["cache_control"])


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({"temperature": 0.5, "top_p": 1}, {"temperature": 0.5}),
        ({"temperature": 1, "top_p": 0.9}, {"top_p": 0.9}),
        ({"temperature": 1, "top_p": 1}, {"temperature": 1}),
        ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
        ({"top_p": 1}, {"top_p": 1}),
    ],
)
def test_of_two_ways_to_sample_one_that_says_nothing_is_left_out(
    asked: dict[str, float], kept: dict[str, float]
) -> None:
    found = chat(**asked).sent()
    assert {name: found[name] for name in ("temperature", "top_p") if name in found} == kept


def test_a_client_of_the_dialect_has_its_own_word_on_sampling() -> None:
    found = messages(temperature=0.5, top_p=1).sent()
    assert (found["temperature"], found["top_p"]) == (0.5, 1)


def test_what_else_a_cache_hint_says_goes_to_its_maker_alone() -> None:
    hint = {"cache_control": {"type": "ephemeral", "ttl": "1h", "scope": "global"}}
    fields: dict[str, Any] = {
        "system": [text("be") | hint],
        "tools": [{"name": "f", "input_schema": {"type": "object"}} | hint],
        "messages": [user([text("hi") | hint])],
    }
    exchange = messages(**fields)
    body = exchange.sent()
    assert [body["system"][0], body["tools"][0], body["messages"][0]["content"][0]] == [
        fields["system"][0],
        fields["tools"][0],
        fields["messages"][0]["content"][0],
    ]
    assert b"global" not in ChatUpstream().render_request(exchange.request)
