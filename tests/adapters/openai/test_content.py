"""Messages, parts and tools of a chat request: what comes in goes out again to an upstream of the same dialect."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import (
    ASSISTANT,
    TOOL,
    USER,
    CacheHint,
    Document,
    Image,
    MediaSource,
    Message,
    Opaque,
    Part,
    ProviderData,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from adapters.canonical.request import OutputFormat, Request, Tool
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.quirks import Quirks
from tests.adapters.openai.exchange import Exchange, chat

CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
CUSTOM_CALL = {"id": "c2", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Rhyme."},
    {"role": "developer", "content": "Rhyme.", "name": "dev"},
    {"role": "critic", "content": "a role that a template may know"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]},
    {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
    {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}}],
    },
    {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "http://x.test/a.png", "zoom": 2}, "tag": 1}],
    },
    {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]},
    {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "http://x.test/a.mp4", "fps": 1}}]},
    {"role": "user", "content": [{"type": "file", "file": {"file_id": "f1"}}]},
    {"role": "user", "content": [{"type": "file", "file": {"file_data": "AA", "filename": "a.pdf"}}]},
    {"role": "user", "content": [{"type": "hologram", "hologram": {"z": [1.0, 1e400]}}]},
    {"role": "user", "content": "x", "weight": 0.50},
    {"role": "assistant", "content": "a", "name": "bot"},
    {"role": "assistant", "content": None, "tool_calls": [CALL, CUSTOM_CALL]},
    {"role": "assistant", "content": "hm", "tool_calls": [{**CALL, "extra_content": {"google": {"s": "x"}}}]},
    {"role": "assistant", "content": None, "tool_calls": [{**CALL, "function": {**CALL["function"], "odd": 1}}]},
    {"role": "assistant", "content": None, "refusal": "no"},
    {"role": "assistant", "content": "a", "refusal": "no"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}, {"type": "text", "text": "but"}]},
    {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
    {"role": "assistant", "content": None, "audio": {"id": "audio_1", "odd": True}},
    {"role": "assistant", "content": "a", "reasoning_content": "thought"},
    {"role": "assistant", "content": "a", "reasoning_content": "t", "reasoning_details": [{"signature": "s"}]},
    {"role": "assistant", "content": "a", "annotations": [{"type": "url_citation"}]},
    {"role": "assistant", "content": "a", "prefix": True},
    {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
    {"role": "tool", "tool_call_id": "c1", "content": "12:00", "name": "now", "cache_control": {"type": "x"}},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "tool", "tool_call_id": "c1", "content": ""},
]


@pytest.mark.parametrize("message", MESSAGES, ids=str)
def test_a_message_reaches_an_upstream_of_the_dialect_as_it_came(message: dict[str, Any]) -> None:
    body = json.dumps({"model": "m", "messages": [message]}).replace("Infinity", "1e400").encode()
    exchange = Exchange(body)
    assert exchange.sent()["messages"] == [message]
    again = Exchange(exchange.upstream.render_request(exchange.request))
    assert again.request == exchange.request


@pytest.mark.parametrize(
    "message",
    [
        *({"role": role, "content": ""} for role in ("user", "assistant", "system")),
        {"role": ASSISTANT, "content": None},
    ],
    ids=str,
)
def test_an_empty_text_and_an_answer_of_null_are_messages_without_parts(message: dict[str, Any]) -> None:
    assert chat(messages=[message]).request.messages == (Message(role=message["role"]),)
    assert chat(messages=[message]).sent()["messages"] == [{"role": message["role"], "content": ""}]


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": []}], ids=str)
@pytest.mark.parametrize("role", ["system", "developer", "user", "tool", "critic"])
def test_a_message_without_content_is_refused_unless_it_is_an_answer(role: str, content: dict[str, Any]) -> None:
    said = {"role": "user", "content": "hi"}
    with pytest.raises(InvalidRequest) as caught:
        chat(messages=[said, {"role": role, "tool_call_id": "c1", **content}])
    assert caught.value.param == "messages[1].content"


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": []}, {"content": ""}], ids=str)
@pytest.mark.parametrize("said", [{"tool_calls": [CALL]}, {"refusal": "no"}, {"reasoning_content": "hm"}], ids=str)
def test_an_answer_that_says_something_else_needs_no_content(said: Any, content: dict[str, Any]) -> None:
    (message,) = chat(messages=[{"role": "assistant", **content, **said}]).request.messages or ()
    assert len(message.parts) == 1


@pytest.mark.parametrize("content", [{}, {"content": []}], ids=str)
def test_an_answer_that_says_nothing_at_all_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(messages=[{"role": "assistant", **content}])
    assert caught.value.param == "messages[0].content"


def test_an_answer_that_a_client_dumps_and_plays_back_is_taken() -> None:
    dumped: dict[str, Any] = {
        "role": "assistant",
        "content": "a",
        "refusal": None,
        "audio": None,
        "function_call": None,
    }
    dumped |= {"tool_calls": None, "annotations": [], "reasoning_content": None}
    assert chat(messages=[dumped]).sent()["messages"] == [{"role": "assistant", "content": "a"}]


@pytest.mark.parametrize("content", ["here", None])
def test_images_that_a_model_made_come_back_as_images_and_to_their_own_dialect_as_they_were(content: Any) -> None:
    urls = ["data:image/png;base64,iVBORw0KGgo=", "https://x/a.png"]
    images = [{"type": "image_url", "index": i, "image_url": {"url": url}} for i, url in enumerate(urls)]
    said = {"role": "assistant", "content": content, "images": images}
    exchange = chat(messages=[{"role": "user", "content": "hi"}, said])
    parts = (exchange.request.messages or ())[1].parts
    assert [part.source.url for part in parts if isinstance(part, Image)] == urls
    assert exchange.sent()["messages"][1] == said


def test_what_is_no_image_is_refused_among_them() -> None:
    for odd in ({"type": "text", "text": "x"}, {"type": "image_url"}):
        with pytest.raises(InvalidRequest, match=r"^messages\[0\]\.images"):
            chat(messages=[{"role": "assistant", "content": "x", "images": [odd]}])


def test_both_spellings_of_reasoning_are_read() -> None:
    for name in ("reasoning", "reasoning_content"):
        message = {"role": "assistant", "content": "a", name: "thought"}
        assert chat(messages=[message]).sent()["messages"][0]["reasoning_content"] == "thought"


@pytest.mark.parametrize("arguments", ["", "{}", None, {}, {"a": 1}])
def test_history_with_a_call_without_arguments_or_with_an_object_is_taken(arguments: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": arguments}}
    sent = chat(messages=[{"role": "assistant", "tool_calls": [call]}]).sent()
    assert sent["messages"][0]["tool_calls"][0]["function"]["arguments"] == (
        arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
    )


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({}, "messages[0].role"),
        ({"role": 1}, "messages[0].role"),
        ({"role": ""}, "messages[0].role"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": [5]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "text", "text": 1}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].image_url"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "messages[0].content[0].image_url.url"),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
        ({"role": "tool", "content": "x", "tool_call_id": ""}, "messages[0].tool_call_id"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].id"),
        ({"role": "assistant", "tool_calls": [{**CALL, "id": ""}]}, "messages[0].tool_calls[0].id"),
        ({"role": "assistant", "tool_calls": [{**CALL, "type": "x"}]}, "messages[0].tool_calls[0].type"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "messages[0].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": "x"}, "messages[0].tool_calls"),
        ({"role": "assistant", "audio": {}}, "messages[0].audio.id"),
        ({"role": "function", "name": "f", "content": "x"}, "messages[0].role"),
        ({"role": "assistant", "function_call": {"name": "f", "arguments": ""}}, "messages[0].function_call"),
    ],
)
def test_what_is_wrong_in_a_message_is_named_by_its_path(message: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(messages=[message])
    assert caught.value.param == path
    assert caught.value.message.startswith(path)


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "f"}},
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {"a": 1e400}, "strict": False},
        },
        {"type": "function", "function": {"name": "f", "returns": {"x": 1}}, "cache_control": {"type": "ephemeral"}},
        {"type": "custom", "custom": {"name": "c", "format": {"type": "grammar"}, "odd": [1]}},
        {"type": "web_search", "search_context_size": "low"},
    ],
    ids=str,
)
def test_a_tool_reaches_an_upstream_of_the_dialect_as_it_came(tool: dict[str, Any]) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [tool]})
    exchange = Exchange(body.replace("Infinity", "1e400").encode())
    assert exchange.sent()["tools"] == [tool]


@pytest.mark.parametrize(
    ("tool", "path"),
    [
        ({}, "tools[0].type"),
        ({"type": "function"}, "tools[0].function"),
        ({"type": "function", "function": {}}, "tools[0].function.name"),
        ({"type": "function", "function": {"name": ""}}, "tools[0].function.name"),
        ({"type": "function", "function": {"name": "f", "parameters": []}}, "tools[0].function.parameters"),
        ({"type": "custom", "custom": {"name": "f", "format": "text"}}, "tools[0].custom.format"),
        ("f", "tools[0]"),
    ],
)
def test_what_is_wrong_in_a_tool_is_named_by_its_path(tool: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(tools=[tool])
    assert caught.value.param == path


RAW = b'{"z" : 1.50, "a":[ 1e400,123456789012345678901234567890 ],"z":"\\u00e9"}'


@pytest.mark.parametrize(
    "template",
    [
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"surprise":%b}',
        b'{"model":"m","messages":[{"role":"user","content":"x","surprise":%b}]}',
        b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x","surprise":%b}]}]}',
        b'{"model":"m","messages":[{"role":"user","content":[{"type":"surprise","surprise":%b}]}]}',
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"},"surprise":%b}]}',
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","surprise":%b}}]}',
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":%b}}]}',
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"metadata":%b}',
        b'{"model":"m","prompt":"x","surprise":%b}',
    ],
    ids=["top", "message", "part", "whole part", "tool", "function", "schema", "metadata", "completions"],
)
def test_what_is_not_mapped_is_sent_on_byte_for_byte(template: bytes) -> None:
    exchange = Exchange(template % RAW)
    assert RAW in exchange.upstream.render_request(exchange.request)


def sent_of(*parts: Part, role: str = ASSISTANT) -> dict[str, Any]:
    request = Request(model="m", dialect="anthropic", messages=(Message(role=role, parts=parts),))
    found: dict[str, Any] = json.loads(ChatUpstream().render_request(request))["messages"][0]
    return found


def test_opaque_data_of_another_dialect_stays_here() -> None:
    alien = ProviderData("anthropic", {"secret": b'"blob"'})
    parts: tuple[Part, ...] = (
        Reasoning(text="hm", signature="blob", encrypted="blob", origin="anthropic", provider_data=alien),
        Text(text="a", provider_data=alien, cache=CacheHint()),
        Refusal(text="no", provider_data=alien),
        ToolCall(id="c", name="f", arguments="{}", provider_data=alien),
    )
    assert "blob" not in json.dumps(sent_of(*parts))
    request = Request(
        model="m",
        dialect="anthropic",
        messages=(Message(role=USER, extras=alien),),
        tools=(Tool(kind="function", name="f", extras=alien),),
        extras={"secret": b'"blob"'},
    )
    assert b"blob" not in ChatUpstream().render_request(request)


def test_a_part_or_tool_of_another_dialect_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedParameter, match="messages"):
        sent_of(Opaque(type="x", raw=b'{"type":"x"}', origin="anthropic"), role=USER)
    with pytest.raises(UnsupportedParameter, match="messages"):
        sent_of(Document(source=MediaSource(url="http://x.test/a.pdf")), role=USER)
    hosted = Tool(kind="hosted", name="web_search_20250305", raw=b'{"type":"web_search_20250305"}')
    request = Request(model="m", dialect="anthropic", messages=(), tools=(hosted,))
    with pytest.raises(UnsupportedParameter, match="web_search_20250305"):
        ChatUpstream().render_request(request)


def test_parts_that_chat_spells_otherwise_are_translated() -> None:
    image = Image(source=MediaSource(data="AA", media_type="image/webp"))
    assert sent_of(image, role=USER)["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/webp;base64,AA"}}
    ]
    assert sent_of(Document(text="d", title="T", context="C"), role=USER)["content"] == [
        {"type": "text", "text": "T\nC\nd"}
    ]
    paper = Document(source=MediaSource(data="AA", media_type="application/pdf"), title="T", context="C")
    assert sent_of(paper, role=USER)["content"] == [
        {"type": "text", "text": "C"},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA", "filename": "T"}},
    ]
    with pytest.raises(UnsupportedParameter, match="Document"):
        sent_of(Document(text="d", citations=True), role=USER)
    thoughts = sent_of(Reasoning(text="a"), Reasoning(summary=("b", "c")), Text(text="x"))
    assert thoughts == {"role": "assistant", "reasoning_content": "ab\n\nc", "content": "x"}


def test_details_of_several_reasoning_parts_join() -> None:
    one, two = (ProviderData("openai.chat", {"reasoning_details": raw}) for raw in (b'[{"a":1}]', b'[{"b" : 2}]'))
    body = ChatUpstream().render_request(
        Request(
            model="m",
            dialect="openai.chat",
            messages=(Message(role=ASSISTANT, parts=(Reasoning(provider_data=one), Reasoning(provider_data=two))),),
        )
    )
    assert b'"reasoning_details":[{"a":1},{"b" : 2}]' in body


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (OutputFormat(kind="json_object"), {"type": "json_object"}),
        (
            OutputFormat(kind="json_schema", name="s", description="d", schema=b'{"type":"object"}', strict=True),
            {
                "type": "json_schema",
                "json_schema": {"name": "s", "description": "d", "schema": {"type": "object"}, "strict": True},
            },
        ),
        (OutputFormat(kind="json_schema"), {"type": "json_schema", "json_schema": {"name": "answer"}}),
    ],
)
def test_an_output_format_of_another_dialect_is_spelled_anew(wanted: OutputFormat, expected: Any) -> None:
    request = Request(model="m", dialect="anthropic", messages=(), output_format=wanted)
    assert json.loads(ChatUpstream().render_request(request))["response_format"] == expected


def test_an_output_format_without_a_word_in_chat_is_refused() -> None:
    wanted = OutputFormat(kind="regex", raw=b'"a+"')
    with pytest.raises(UnsupportedParameter, match="response_format"):
        ChatUpstream().render_request(Request(model="m", dialect="x", messages=(), output_format=wanted))


def test_an_engines_own_format_passes_to_its_own_dialect() -> None:
    for wanted in ({"type": "json_object"}, {"type": "ebnf", "ebnf": "root ::= x"}):
        assert chat(response_format=wanted).sent()["response_format"] == wanted
    assert "response_format" not in chat(response_format={"type": "text"}).sent()


def test_a_vendors_quirks_change_words_alone() -> None:
    quirks = Quirks(
        limit_field="max_completion_tokens",
        names={"repetition_penalty": "repeat_penalty"},
        stream_options=False,
        developer_role=False,
        defaults={"logit_scale": b"1.50", "top_p": b"0.1"},
    )
    request = chat(
        messages=[{"role": "developer", "content": "x"}],
        max_tokens=3,
        repetition_penalty=1.5,
        stream=True,
        top_p=0.5,
    ).request
    assert ChatUpstream(quirks).render_request(request) == (
        b'{"model":"m","messages":[{"role":"system","content":"x"}],"stream":true,"top_p":0.5,'
        b'"repeat_penalty":1.5,"max_completion_tokens":3,"logit_scale":1.50}'
    )


def test_a_result_that_is_an_error_says_so_where_chat_has_no_word_for_it() -> None:
    picture = Image(source=MediaSource(url="https://a.example/x.png"))
    shown = {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}
    expected: list[tuple[tuple[Part, ...], object]] = [
        ((Text(text="no"),), "Error: no"),
        ((), "Error: "),
        ((picture,), [{"type": "text", "text": "Error:"}, shown]),
    ]
    for parts, content in expected:
        result = ToolResult(call_id="a", parts=parts, is_error=True)
        assert sent_of(result, role=TOOL)["content"] == content
        assert sent_of(replace(result, is_error=False), role=TOOL)["content"] != content


@pytest.mark.parametrize("thought", ["hm", [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]])
def test_a_thought_among_the_parts_is_a_thought(thought: Any) -> None:
    said = [{"type": "thinking", "thinking": thought, "closed": True}, {"type": "text", "text": "a"}]
    sent = chat(messages=[{"role": "assistant", "content": said}]).sent()
    assert sent["messages"] == [{"role": "assistant", "reasoning_content": "hm", "content": "a"}]
