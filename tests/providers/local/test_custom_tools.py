"""Custom tools as the functions that local models know."""

import json

import pytest

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import Request, Tool
from adapters.openai.chat.parse import parse_chat
from providers.local.chat_template import ChatTemplate
from providers.local.custom_tools import as_function, custom_names, input_grammar
from providers.local.template_messages import render_prompt

LARK = b'{"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: \\"a\\""}}'


def tool(grammar: bytes | None = None) -> Tool:
    return Tool(kind="custom", name="sql", description="Runs it.", grammar=grammar)


def test_a_custom_tool_is_a_function_of_one_text_that_says_what_it_follows() -> None:
    found = as_function(tool(LARK))
    assert found.parameters is not None
    schema = json.loads(found.parameters)
    assert (found.kind, found.name, found.description, found.strict) == ("function", "sql", "Runs it.", True)
    assert (schema["required"], schema["additionalProperties"]) == (["input"], False)
    assert 'start: "a"' in schema["properties"]["input"]["description"]
    assert "description" not in json.loads(as_function(tool()).parameters or b"")["properties"]["input"]


def test_a_function_stays_as_it_is() -> None:
    function = Tool(kind="function", name="f", parameters=b"{}")
    assert as_function(function) is function


@pytest.mark.parametrize(
    ("dialect", "path"), [("openai.chat", "custom.format.grammar"), ("openai.responses", "format")]
)
def test_a_grammar_knows_its_place_in_the_clients_body(dialect: str, path: str) -> None:
    request = Request(model="m", dialect=dialect, tools=(tool(), tool(LARK)))
    found = input_grammar(request, 1, tool(LARK))
    assert found == ("lark", 'start: "a"', f"tools[1].{path}.definition")
    assert input_grammar(request, 0, tool(b'{"type": "text"}')) is None
    assert custom_names(request) == {"sql"}


@pytest.mark.parametrize("raw", [b'{"type": 3}', b'{"type": "grammar", "grammar": "x"}'])
def test_a_format_that_is_none_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest, match="the format of 'sql'"):
        as_function(tool(raw))


def test_templates_see_functions_and_their_earlier_calls() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sql", "input": "a\n"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
        ],
        "tools": [{"type": "custom", "custom": {"name": "sql"}}],
    }
    request = parse_chat(json.dumps(body).encode(), max_depth=32)
    source = (
        "{{ tools | tojson }}{% for m in messages %}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}"
        "{{ m.content }}{% if m.role == 'tool' %}{% endif %}{% endfor %}"
    )
    text = render_prompt(ChatTemplate(source), request.messages or (), request.tools)
    assert '"type": "function", "function": {"name": "sql"' in text
    assert '"arguments": {"input": "a\\n"}' in text
