"""gpt-oss is held to formats and calls on its channels, and reasons freely before them."""

import json
from typing import Any

import pytest

from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import OutputFormat, Request, Tool, ToolChoice
from adapters.text.harmony import HARMONY_MARKS
from adapters.text.reasoning import REASONING_FORMATS
from providers.local.constraint import constraint
from providers.local.text_formats import TextFormats
from tests.providers.local.grammars import Marking, follows

VOCABULARY = Marking(HARMONY_MARKS)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
TOOLS = (Tool(kind="function", name="f", parameters=json.dumps(SCHEMA).encode(), strict=True),)
THOUGHT = "<|channel|>analysis<|message|>Is it {1}?<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
PREAMBLE = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
JSON = '{"a": 1}'


async def allowed(request: Request, *texts: str, opens: bool = False, special: bool = True) -> list[bool]:
    marks = VOCABULARY.marks if special else {}
    formats = TextFormats(reasoning=REASONING_FORMATS["harmony"], special_marks=marks)
    grammar = constraint(formats, request, opens_reasoning=opens)
    return await follows(grammar, *texts, vocabulary=VOCABULARY if special else None)


def asked(mode: str | None = None, wanted: OutputFormat | None = None) -> Request:
    fields: dict[str, Any] = {} if mode is None else {"tools": TOOLS, "tool_choice": ToolChoice(mode=mode)}
    message = Message(role=USER, parts=(Text(text="hi"),))
    return Request(model="m", dialect="d", messages=(message,), output_format=wanted, **fields)


FORMAT = OutputFormat(kind="json_schema", schema=json.dumps(SCHEMA).encode())


@pytest.mark.parametrize("special", [True, False])
async def test_the_final_message_has_the_format(special: bool) -> None:
    texts = [THOUGHT + FINAL + JSON, FINAL + JSON, FINAL + "no", JSON, THOUGHT + JSON]
    assert await allowed(asked(wanted=FORMAT), *texts, special=special) == [True, True, False, False, False]
    rest = THOUGHT.partition("<|message|>")[2]
    assert await allowed(asked(wanted=FORMAT), rest + FINAL + JSON, opens=True, special=special) == [True]


@pytest.mark.parametrize("special", [True, False])
async def test_a_required_call_is_made_and_follows_its_schema(special: bool) -> None:
    texts = [CALL + JSON, THOUGHT + CALL + JSON, CALL + "{}", FINAL + "no", THOUGHT, CALL.replace(".f", ".g") + JSON]
    assert await allowed(asked("required"), *texts, special=special) == [True, True, False, False, False, False]


@pytest.mark.parametrize("special", [True, False])
async def test_a_free_choice_answers_with_text_or_a_valid_call(special: bool) -> None:
    texts = [FINAL + "Any text.", THOUGHT + CALL + JSON, PREAMBLE + CALL + JSON, CALL + "{}"]
    assert await allowed(asked("auto"), *texts, special=special) == [True, True, True, False]
    both = [FINAL + JSON, CALL + JSON, FINAL + "text"]
    assert await allowed(asked("auto", FORMAT), *both, special=special) == [True, True, False]
