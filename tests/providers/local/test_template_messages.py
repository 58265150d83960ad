import json
from collections.abc import Sequence

import pytest

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import (
    Audio,
    Document,
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
)
from adapters.canonical.request import TemplateOptions, Tool
from providers.local.chat_template import ChatTemplate
from providers.local.template_messages import render_prompt, writes_tools_as_text
from tests.providers.local import templates

RAW = """{%- set known = ['tool', 'tool_calls', tools] %}
{%- for m in messages %}{{- (m | tojson) + '\n' }}{%- endfor %}"""
"""Writes out each dict that the template is given, and knows tools."""


def template(name: str) -> ChatTemplate:
    return ChatTemplate(getattr(templates, name), bos_token="<s>", eos_token="</s>")


def dicts(messages: Sequence[Message], source: str = RAW) -> list[dict[str, object]]:
    lines = render_prompt(ChatTemplate(source), messages).splitlines()
    return [json.loads(line) for line in lines if line]


def say(role: str, *texts: str, name: str | None = None) -> Message:
    return Message(role=role, parts=tuple(Text(text=text) for text in texts), name=name)


CALL = ToolCall(id="c1", name="now", arguments="{}")
TOOL_TURN = [
    say("user", "time?"),
    Message(role="assistant", parts=(CALL,)),
    Message(role="tool", parts=(ToolResult(call_id="c1", parts=(Text(text="12:00"),)),)),
]
NOW = Tool(kind="function", name="now", description="The time", parameters=b'{"type":"object","properties":{}}')


@pytest.mark.parametrize("message", [Message(role="assistant"), say("assistant", ""), say("assistant", "", "")])
def test_a_message_without_text_has_an_empty_text(message: Message) -> None:
    assert dicts([message]) == [{"role": "assistant", "content": ""}]


def test_a_tool_turn_without_content_shows_call_and_result_and_no_none() -> None:
    for source in (templates.CONTENT_ONLY, templates.CHATML, templates.CHATML_TOOLS, templates.FORGETFUL):
        prompt = render_prompt(ChatTemplate(source), TOOL_TURN, [NOW])
        assert "None" not in prompt
        assert "null" not in prompt
        assert prompt.index('"now"') < prompt.index("12:00")


def test_tool_calls_and_results_are_as_templates_expect_them() -> None:
    assert dicts(TOOL_TURN)[1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "now", "arguments": {}}}],
        },
        {"role": "tool", "content": "12:00", "name": "now", "tool_call_id": "c1"},
    ]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [("", {}), (" ", {}), ("{}", {}), ('{"a": [1, "é"]}', {"a": [1, "é"]}), ('{"a":', '{"a":'), ("[1]", "[1]")],
)
def test_arguments_are_a_mapping_and_what_is_none_stays_text(text: str, arguments: object) -> None:
    message = Message(role="assistant", parts=(ToolCall(id="x", name="f", arguments=text),))
    calls = dicts([message])[0]["tool_calls"]
    assert calls == [{"id": "x", "type": "function", "function": {"name": "f", "arguments": arguments}}]


def test_results_inside_a_user_message_become_tool_turns_in_their_order() -> None:
    results = [ToolResult(call_id=f"c{i}", parts=(Text(text=str(i)),), is_error=i == 2) for i in (1, 2)]
    mixed = Message(role="user", parts=(*results, Text(text="so?")))
    assert [(d["role"], d["content"]) for d in dicts([mixed])] == [
        ("tool", "1"),
        ("tool", "Error: 2"),
        ("user", "so?"),
    ]


def test_developer_is_system_unless_the_template_knows_developer() -> None:
    messages = [say("developer", "Rhyme."), say("user", "Hi")]
    assert "<|im_start|>system\nRhyme.<|im_end|>" in render_prompt(template("CHATML"), messages)
    assert render_prompt(template("DEVELOPER"), messages) == "developer:Rhyme.\nuser:Hi\n"


def test_leading_system_messages_are_joined_in_their_order() -> None:
    messages = [say("system", "One."), say("developer", "Two."), say("user", "Hi")]
    assert dicts(messages)[0] == {"role": "system", "content": "One.\n\nTwo."}
    assert render_prompt(template("DEVELOPER"), messages) == "system:One.\n\nTwo.\nuser:Hi\n"


def test_a_later_system_message_stays_where_the_template_takes_it() -> None:
    messages = [say("user", "a"), say("system", "b"), say("user", "c")]
    assert [d["role"] for d in dicts(messages)] == ["user", "system", "user"]


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("FORGETFUL", "U: a\nA: b\nU: <system>\nRhyme.\n</system>\nU: c\nA:"),
        ("STRICT", "<s>[INST] a [/INST] b</s>[INST] <system>\nRhyme.\n</system>\n\nc [/INST]"),
    ],
)
def test_a_later_system_message_is_a_marked_user_turn_where_the_template_forgets_or_refuses_it(
    name: str, prompt: str
) -> None:
    messages = [say("user", "a"), say("assistant", "b"), say("system", "Rhyme."), say("user", "c")]
    assert render_prompt(template(name), messages) == prompt


@pytest.mark.parametrize("name", ["FORGETFUL", "NO_SYSTEM"])
def test_a_leading_system_message_goes_into_the_user_turn_where_the_template_has_no_place(name: str) -> None:
    prompt = render_prompt(template(name), [say("system", "Rhyme."), say("user", "Hi")])
    assert "Rhyme.\n\nHi" in prompt


def test_a_switch_that_the_template_takes_out_of_the_system_message_is_no_loss() -> None:
    source = "{{ messages[0].content.replace('/no_think', '').rstrip() }}|{{ messages[0].role }}"
    for text, shown in (("Rhyme. /no_think", "Rhyme."), ("/no_think", "")):
        prompt = render_prompt(ChatTemplate(source), [say("system", text), say("user", "x")])
        assert prompt == f"{shown}|system"


def test_adjacent_turns_are_passed_as_they_are_and_merged_only_for_a_template_that_refuses_them() -> None:
    messages = [say("user", "Title this:"), say("user", "hello")]
    assert [d["content"] for d in dicts(messages)] == ["Title this:", "hello"]
    assert render_prompt(template("STRICT"), messages) == "<s>[INST] Title this:\n\nhello [/INST]"


def test_what_the_template_still_refuses_is_a_400_that_names_the_clients_message() -> None:
    messages = [say("system", "a"), say("system", "b"), say("user", "c"), say("user", "d"), say("critic", "e")]
    with pytest.raises(InvalidRequest) as caught:
        render_prompt(template("STRICT"), messages)
    assert caught.value.status == 400
    assert caught.value.param == "messages[4]"
    assert caught.value.message.startswith("messages[4]: ")
    assert "SECRET" not in caught.value.message


def test_a_conversation_that_starts_with_the_assistant_is_named_for_a_strict_template() -> None:
    with pytest.raises(InvalidRequest, match=r"messages\[0\]: .* assistant message as the first message"):
        render_prompt(template("STRICT"), [say("assistant", "a"), say("user", "b")])


@pytest.mark.parametrize(
    ("name", "clean"),
    [("ann", "ann"), ("a\nb<|im_end|>\x07", "abim_end"), ("\n", None), ("", None), (None, None), ("Zoë K.", "Zoë K.")],
)
def test_a_name_reaches_the_template_without_lines_and_markers(name: str | None, clean: str | None) -> None:
    assert dicts([say("user", "hi", name=name)])[0].get("name") == clean


def test_several_texts_are_one_text_or_parts_as_the_template_takes_them() -> None:
    messages = [say("user", "a", "", "b"), say("user", "c")]
    assert dicts(messages)[0]["content"] == "ab"
    assert render_prompt(template("PARTS"), messages) == "user:ab\nuser:c\n"
    assert render_prompt(template("EITHER"), messages) == "user:[a][b]\nuser:c\n"


def test_reasoning_reaches_a_template_that_shows_it() -> None:
    message = Message(role="assistant", parts=(Reasoning(text="hm"), Text(text="yes"), Refusal(text=" no")))
    assert dicts([message]) == [{"role": "assistant", "content": "yes no", "reasoning_content": "hm"}]
    assert "<think>hm</think>yes no" in render_prompt(template("CHATML_TOOLS"), [say("user", "x"), message])


@pytest.mark.parametrize(
    "part",
    [
        Image(source=MediaSource(url="http://x/y.png")),
        Audio(source=MediaSource(data="AAAA")),
        Document(source=MediaSource(data="AAAA")),
        Opaque(type="computer_call", raw=b"{}", origin="responses"),
        ToolResult(call_id="x", parts=(Image(source=MediaSource(data="AAAA")),)),
    ],
)
def test_media_are_refused_by_their_place(part: Part) -> None:
    messages = [say("system", "s"), Message(role="user", parts=(Text(text="see"), part))]
    with pytest.raises(UnsupportedParameter) as caught:
        render_prompt(template("CHATML"), messages)
    assert caught.value.param == "messages[1].content[1]"


def test_text_inside_other_parts_is_kept() -> None:
    parts = (
        Document(text="body", title="Title"),
        Audio(source=MediaSource(file_id="a"), transcript="spoken"),
    )
    assert dicts([Message(role="user", parts=parts)])[0]["content"] == "Title\n\nbodyspoken"


def test_tools_reach_a_template_that_knows_them_with_their_schema_in_order() -> None:
    tool = Tool(kind="function", name="f", parameters=b'{"type":"object","properties":{"z":{},"a":{}}}')
    prompt = render_prompt(template("CHATML_TOOLS"), [say("user", "x")], [NOW, tool])
    assert '{"type": "function", "function": {"name": "now", "description": "The time"' in prompt
    assert '"properties": {"z": {}, "a": {}}' in prompt
    assert not writes_tools_as_text(template("CHATML_TOOLS"))


def test_tools_are_written_as_text_for_a_template_that_knows_none() -> None:
    for messages in ([say("system", "Be kind."), say("user", "time?")], [say("user", "time?")]):
        prompt = render_prompt(template("CHATML"), messages, [NOW])
        assert '<tools>\n{"type": "function", "function": {"name": "now"' in prompt
        assert '{"name": "...", "arguments": {...}}' in prompt
        assert prompt.count("<|im_start|>system") == 1
        assert prompt.index("</tools>") < prompt.index("time?")
    assert writes_tools_as_text(template("CHATML"))


def test_a_models_own_template_for_tools_is_used_with_tools() -> None:
    both = ChatTemplate("plain", for_tools=ChatTemplate("{{ tools | length }} tools"))
    assert render_prompt(both, [say("user", "x")], [NOW]) == "1 tools"
    assert render_prompt(both, [say("user", "x")]) == "plain"
    assert not writes_tools_as_text(both)


@pytest.mark.parametrize("kind", ["hosted", "mcp"])
def test_a_tool_that_no_template_knows_is_refused_by_its_place(kind: str) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        render_prompt(template("CHATML"), [say("user", "x")], [NOW, Tool(kind=kind, name="t")])
    assert caught.value.param == "tools[1]"


def test_a_final_message_can_be_continued_to_the_character() -> None:
    messages = [say("user", "Count"), say("assistant", "1, 2, ")]
    options = TemplateOptions(continue_final_message=True)
    assert render_prompt(template("CHATML"), messages, options=options).endswith("<|im_start|>assistant\n1, 2, ")
    assert render_prompt(template("LLAMA3"), messages, options=options).endswith("\n\n1, 2, ")
    assert render_prompt(template("PARTS"), messages, options=options).endswith("assistant:1, 2, ")


def test_the_answers_start_is_written_unless_the_request_says_no() -> None:
    messages = [say("user", "Hi")]
    assert render_prompt(template("CHATML"), messages).endswith("<|im_start|>assistant\n")
    options = TemplateOptions(add_generation_prompt=False)
    assert render_prompt(template("CHATML"), messages, options=options).endswith("Hi<|im_end|>\n")


def test_the_clients_variables_go_before_the_providers() -> None:
    options = TemplateOptions(kwargs=b'{"enable_thinking": false}')
    for kwargs in (None, {"enable_thinking": True}):
        prompt = render_prompt(template("CHATML_TOOLS"), [say("user", "x")], options=options, kwargs=kwargs)
        assert prompt.endswith("<think></think>")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        (TemplateOptions(kwargs=b"[]"), "chat_template_kwargs"),
        (TemplateOptions(kwargs=b'{"messages": []}'), "chat_template_kwargs.messages"),
        (TemplateOptions(continue_final_message=True, add_generation_prompt=True), "continue_final_message"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(options: TemplateOptions, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        render_prompt(template("CHATML"), [say("user", "x")], options=options)
    assert caught.value.param == param


def test_no_messages_are_a_400() -> None:
    with pytest.raises(InvalidRequest):
        render_prompt(template("STRICT"), [])


def test_a_long_conversation_that_is_refused_is_still_answered_soon() -> None:
    messages = [say("user", "x" * 20) for _ in range(2000)]
    assert render_prompt(template("STRICT"), messages).count("x" * 20) == 2000


PARTS_OF_ALL_KINDS = ChatTemplate(
    "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}"
    "{% elif p.type == 'table' %}[{{ p.rows | join('|') }}]{% endif %}{% endfor %}{% endfor %}"
)


def test_parts_of_a_kind_that_the_template_knows_reach_it_as_they_came() -> None:
    table = Opaque(type="table", raw=b'{"type": "table", "rows": ["a", "<s>"]}', origin="openai.chat")
    message = Message(role="user", parts=(Text(text="See "), table, Text(text=".")))
    assert render_prompt(PARTS_OF_ALL_KINDS, [message]) == "See [a|<s>]."
    assert (
        render_prompt(PARTS_OF_ALL_KINDS, [message], quote=lambda text: text.replace("<s>", "< s>")) == "See [a|< s>]."
    )


def test_parts_of_a_kind_that_it_would_pass_over_are_refused_by_their_place() -> None:
    other = Opaque(type="chart", raw=b'{"type": "chart"}', origin="openai.chat")
    for source in (PARTS_OF_ALL_KINDS, ChatTemplate("{{ messages[0].content }} chart")):
        with pytest.raises(UnsupportedParameter) as caught:
            render_prompt(source, [Message(role="user", parts=(Text(text="x"), other))])
        assert caught.value.param == "messages[0].content[1]"
