"""Tools of models whose templates know none: what the prompt asks for is what is read back."""

import json

import pytest

from adapters.canonical.messages import ASSISTANT, TOOL, USER, Message, Text, ToolCall, ToolResult
from adapters.canonical.request import Tool
from adapters.text.tool_calls import TOOL_FORMATS, CallArguments, CallStarted, ToolCallParser
from providers.local.chat_template import ChatTemplate
from providers.local.template_messages import render_prompt
from providers.local.tools_as_text import HERMES, tools_as_text

TEMPLATE = ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
ARGUMENTS = {"city": 'Łódź "x"\n', "days": [1, 2], "near": {"a": None, "b": True}, "t": 1.5}
FORMS = ["hermes", "tool_code"]


def conversation() -> list[Message]:
    call = ToolCall(id="c", name="weather", arguments=json.dumps(ARGUMENTS))
    return [
        Message(role=USER, parts=(Text(text="Well?"),)),
        Message(role=ASSISTANT, parts=(Text(text="Let me see."), call)),
        Message(role=TOOL, parts=(ToolResult(call_id="c", parts=(Text(text="rain"),)),)),
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_call_in_the_prompt_is_spelled_as_it_is_read(form: str) -> None:
    prompt = render_prompt(TEMPLATE, conversation(), spelling=tools_as_text(TOOL_FORMATS[form]))
    said = prompt.partition("<assistant>")[2].partition("<user>")[0]
    parser = ToolCallParser(TOOL_FORMATS[form], ("weather",), lambda: "c")
    pieces = [*parser.feed(said), *parser.flush()]
    assert [piece.name for piece in pieces if isinstance(piece, CallStarted)] == ["weather"]
    assert json.loads("".join(piece.text for piece in pieces if isinstance(piece, CallArguments))) == ARGUMENTS


@pytest.mark.parametrize(("form", "words"), [("hermes", "<tool_call>"), ("tool_code", "```tool_code")])
def test_the_prompt_asks_for_the_form_and_names_the_tools(form: str, words: str) -> None:
    tools = [Tool(kind="function", name="weather", parameters=b'{"type": "object"}')]
    prompt = render_prompt(TEMPLATE, conversation(), tools, spelling=tools_as_text(TOOL_FORMATS[form]))
    asked = prompt.partition("<user>")[0]
    assert words in asked
    assert '"name": "weather"' in asked
    result = prompt.rpartition("<user>")[2]
    assert "rain" in result
    assert ("tool_output" in result) is (form == "tool_code")


def test_arguments_that_are_no_object_stand_as_the_model_wrote_them() -> None:
    found = tools_as_text(TOOL_FORMATS["tool_code"]).call({"name": "f", "arguments": "a, b"})
    assert found == "```tool_code\nf(a, b)\n```"


def test_other_forms_are_asked_for_as_hermes() -> None:
    assert tools_as_text(None) is HERMES
    assert tools_as_text(TOOL_FORMATS["glm"]) is HERMES
