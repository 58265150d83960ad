"""Templates of public model families render as transformers renders them, from dicts and from canonical messages."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from adapters.canonical.request import TemplateOptions
from adapters.openai.chat.parse import parse_chat
from providers.local.chat_template import ChatTemplate, TemplateRefusal
from providers.local.settings import LocalModelSettings
from providers.local.template_messages import render_prompt
from providers.local.text_formats import text_formats
from tests.scripted_engine import Vocabulary

Messages = list[dict[str, Any]]

FAMILIES = {
    file.stem: file.read_text(encoding="utf-8") for file in (Path(__file__).parent / "families").glob("*.jinja")
}
"""Written anew with the structure of the families' own: what they read, loop over and call."""

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Gives the weather <now> & later: größer",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "enum": ["Łódź", "東京"]},
                    "days": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["place"],
            },
        },
    }
]


def call(number: int, **arguments: object) -> dict[str, Any]:
    return {"id": f"callid{number:03}", "type": "function", "function": {"name": "weather", "arguments": arguments}}


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": f"callid{number:03}", "name": "weather"}


CONVERSATIONS: Mapping[str, Messages] = {
    "one turn": [{"role": "user", "content": "Hi"}],
    "system": [{"role": "system", "content": " Rhyme. /no_think "}, {"role": "user", "content": "Hi\n"}],
    "developer": [{"role": "developer", "content": "Rhyme."}, {"role": "user", "content": "Hi"}],
    "several turns": [
        {"role": "user", "content": "1 < 2 & \"quotes\" 'x' {{ no }} {% no %}"},
        {"role": "assistant", "content": "  yes  "},
        {"role": "user", "content": "😊 naïve"},
        {"role": "assistant", "content": "<think>\nso\n</think>\n\nno"},
        {"role": "user", "content": "?"},
    ],
    "a call": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [call(1, place="東京", days=[1, 2], x={"a": None, "b": 1.5})],
        },
        result(1, '{"sky": "blue"}'),
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": "Thanks"},
    ],
    "calls side by side": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "Both?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call(1, place="a"), call(2, place="b", on=True)]},
        result(1, "rain"),
        result(2, "sun"),
    ],
    "thoughts": [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "", "reasoning_content": "hm\n", "tool_calls": [call(1, place="a")]},
        result(1, "x"),
        {"role": "assistant", "content": "Since.", "reasoning_content": "so"},
    ],
    "a name": [{"role": "user", "content": "Hi", "name": "ann"}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]}],
    "a later system message": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "system", "content": "c"},
        {"role": "user", "content": "d"},
    ],
}
VARIABLES: Sequence[dict[str, Any]] = (
    {},
    {"enable_thinking": False, "thinking": True, "reasoning_effort": "low", "documents": [{"doc_id": 1, "text": "d"}]},
)


def oracle(source: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE({"<s>": 0, "</s>": 1}, []))
    found = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    found.chat_template = source
    return found


def test_there_are_more_than_ten_families() -> None:
    assert len(FAMILIES) == 14


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_familys_template_renders_as_transformers_does(family: str) -> None:
    ours, theirs = ChatTemplate(FAMILIES[family], bos_token="<s>", eos_token="</s>"), oracle(FAMILIES[family])
    compared = 0
    for conversation in CONVERSATIONS.values():
        given = [as_templates_get(message, ours) for message in conversation]
        for tools in (None, TOOLS):
            for generates in (True, False):
                for variables in VARIABLES:
                    options: dict[str, Any] = {"tools": tools, "add_generation_prompt": generates}
                    try:
                        expected = theirs.apply_chat_template(conversation, tokenize=False, **options, **variables)
                    except Exception:
                        with pytest.raises(TemplateRefusal):
                            ours.render(given, **options, kwargs=variables)
                        continue
                    compared += 1
                    # Twice, for the templates that write the day.
                    assert expected in [ours.render(given, **options, kwargs=variables) for _ in range(2)]
    assert compared >= 24


WITHOUT_CALLS = ("gemma_3", "phi_4_mini", "granite_3", "smollm_3")
"""Families whose templates have no place for calls and results: they get them written out."""


@pytest.mark.parametrize(
    ("family", "name"),
    [
        (family, name)
        for family in sorted(FAMILIES)
        for name in ("one turn", "system", "several turns", "a call", "thoughts")
        if not (family in WITHOUT_CALLS and name in ("a call", "thoughts"))
    ],
)
def test_a_request_is_rendered_as_its_messages_would_be(family: str, name: str) -> None:
    """Where the template takes the conversation as it is, nothing of ours shows in the prompt."""
    template, conversation = ChatTemplate(FAMILIES[family], bos_token="<s>", eos_token="</s>"), CONVERSATIONS[name]
    wire = [
        {**message, "tool_calls": [with_text(one) for one in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in conversation
    ]
    body = {"model": "m", "messages": wire, "tools": TOOLS}
    request = parse_chat(json.dumps(body).encode(), max_depth=20)
    assert request.messages is not None
    expected = oracle(FAMILIES[family]).apply_chat_template(
        [as_templates_get(message, template) for message in conversation],
        tools=TOOLS if template.knows_tools else None,
        tokenize=False,
        add_generation_prompt=True,
    )
    tools = request.tools if template.knows_tools else None
    assert render_prompt(template, request.messages, tools, TemplateOptions()) == expected


def with_text(one: dict[str, Any]) -> dict[str, Any]:
    """A call as clients send it: its arguments are text."""
    return {**one, "function": {**one["function"], "arguments": json.dumps(one["function"]["arguments"])}}


def as_templates_get(message: dict[str, Any], template: ChatTemplate) -> dict[str, Any]:
    """transformers, too, tells of thoughts under both names."""
    thought = message.get("reasoning_content")
    return {**message, "thinking": thought} if thought and template.reads_field("thinking") else message


@pytest.mark.parametrize(
    ("family", "reasoning", "tools"),
    [
        ("qwen_25", None, "<tool_call>"),
        ("qwen_3", "<think>", "<tool_call>"),
        ("qwen_3_coder", None, "<tool_call>"),
        ("llama_31", None, "<|python_tag|>"),
        ("mistral", None, "[TOOL_CALLS]"),
        ("functiongemma", None, "<start_function_call>"),
        ("deepseek_v31", "<think>", "<｜tool▁calls▁begin｜>"),
        ("gpt_oss", "<|channel|>analysis<|message|>", None),
        ("glm_45", "<think>", "<tool_call>"),
        ("kimi_k2", None, "<|tool_calls_section_begin|>"),
        ("smollm_3", "<think>", "<tool_call>"),  # takes no tools: they are written as text in this form
    ],
)
def test_a_familys_template_shows_its_forms(family: str, reasoning: str | None, tools: str | None) -> None:
    formats = text_formats(ChatTemplate(FAMILIES[family]), Vocabulary(), LocalModelSettings())
    assert (formats.reasoning and formats.reasoning.start, formats.tools and formats.tools.start) == (reasoning, tools)
