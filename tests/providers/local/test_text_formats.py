"""The form of a model's reasoning and calls: what run.yaml says, else what its chat template shows."""

import pytest

from adapters.canonical.events import ReasoningDelta
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Request, Tool, ToolChoice
from adapters.text.reasoning import REASONING_FORMATS
from adapters.text.tool_calls import TOOL_FORMATS
from providers.base import ProviderSettings
from providers.local.chat_template import ChatTemplate
from providers.local.settings import LocalModelSettings, read_settings
from providers.local.text_formats import TextFormats, shown_special_ids, text_formats, text_pipeline
from tests.providers.local import templates
from tests.scripted_engine import Vocabulary


def found(template: str, *, for_tools: str | None = None, **settings: str) -> tuple[str | None, str | None]:
    """The names of the formats."""
    chat = ChatTemplate(template, for_tools=None if for_tools is None else ChatTemplate(for_tools))
    formats = text_formats(chat, Vocabulary(), LocalModelSettings(**settings))  # type: ignore[arg-type]
    reasoning = {row: name for name, row in REASONING_FORMATS.items()}
    tools = {row: name for name, row in TOOL_FORMATS.items()}
    return (
        None if formats.reasoning is None else reasoning[formats.reasoning],
        None if formats.tools is None else tools[formats.tools],
    )


def reads_tools(written: str) -> str:
    return "{% for tool in tools %}{{ tool }}{% endfor %}" + written


@pytest.mark.parametrize(
    ("template", "reasoning", "tools"),
    [
        (templates.CHATML, None, "hermes"),  # takes no tools: they are written as text in this form
        (templates.CHATML_TOOLS, "think", "hermes"),
        (reads_tools("{{ '<tool_call>' + x }}"), None, "hermes"),
        (reads_tools("<tool_call>"), None, "hermes"),
        (reads_tools("<tool_call>\n<function=f>"), None, "qwen3_coder"),
        (reads_tools("<seed:tool_call>\n<function=f>"), None, "seed_oss"),
        (reads_tools("<tool_call>f<arg_key>"), None, "glm"),
        (reads_tools("<minimax:tool_call>"), None, "minimax_m2"),
        (reads_tools("<｜DSML｜function_calls>"), None, "deepseek_v32"),
        (reads_tools("<｜tool▁sep｜>f\n```json"), None, "deepseek_v3"),
        (reads_tools("f<｜tool▁sep｜>"), None, "deepseek_v31"),
        (reads_tools("<|tool_calls_section_begin|>"), None, "kimi_k2"),
        (reads_tools("<start_function_call>"), None, "function_gemma"),
        (reads_tools("<|tool_call>"), None, "gemma"),
        (reads_tools("<|tool_call|>"), None, "granite"),
        (reads_tools("<|START_THINKING|><|START_ACTION|>"), "cohere", "cohere"),
        (reads_tools("<|tool_call_start|>"), None, "lfm2"),
        (reads_tools("<|python_start|>"), None, "pythonic"),
        (reads_tools("<function_calls>"), None, "olmo3"),
        (reads_tools("[TOOL_CALLS]"), None, "mistral"),
        (reads_tools("[TOOL_CALLS]f[ARGS]"), None, "mistral_args"),
        (reads_tools("{{ '<|python_tag|>' }}"), None, "llama3_json"),
        (reads_tools("{{ '\"parameters\": ' }}"), None, "llama3_json"),
        (reads_tools("<|channel|>"), "harmony", None),  # calls too
        (reads_tools("<|channel>thought<channel|><|tool_call>"), "gemma", "gemma"),
        (reads_tools("<seed:think>"), "seed_oss", None),
        (reads_tools("<|START_THINKING|>"), "cohere", None),
        ("{% if '</think>' in messages[0].content %}{% endif %}", "think", "hermes"),
        ("[THINK]", "mistral", "hermes"),
    ],
)
def test_a_template_shows_its_forms(template: str, reasoning: str | None, tools: str | None) -> None:
    assert found(template) == (reasoning, tools)


def test_a_models_own_template_for_tools_decides_about_calls() -> None:
    assert found(templates.CHATML, for_tools=reads_tools("[TOOL_CALLS]")) == (None, "mistral")


def test_run_yaml_goes_before_the_template() -> None:
    settings = {"reasoning_format": "mistral", "tool_format": "llama3_json"}
    assert found(templates.CHATML_TOOLS, **settings) == ("mistral", "llama3_json")
    assert found(templates.CHATML_TOOLS, reasoning_format="none", tool_format="none") == (None, None)


def test_a_model_without_a_template_has_no_forms() -> None:
    assert text_formats(None, Vocabulary(), LocalModelSettings(tool_format="hermes")) == TextFormats()


@pytest.mark.parametrize("key", ["reasoning_format", "tool_format"])
def test_a_format_that_nobody_knows_is_refused_with_the_names_of_those_known(key: str) -> None:
    settings = ProviderSettings(name="local", type="local", options={"models": {"m": {key: "hermess"}}})
    with pytest.raises(ValueError, match=rf"providers\.local\.models\.m\.{key}: .*'hermess', expected .* or none"):
        read_settings(settings)


class MarkingVocabulary(Vocabulary):
    """One whose marks of calls are special tokens, as Mistral's are."""

    def is_special(self, token_id: int) -> bool:
        return super().is_special(token_id) or self.token_bytes(token_id).startswith((b"[TOOL", b"[THINK", b"[/THINK"))


MESSAGES = (Message(role=USER, parts=(Text(text="hi"),)),)
TOOLS = (Tool(kind="function", name="f"),)


def asked(**fields: object) -> Request:
    return Request(model="m", dialect="d", **{"messages": MESSAGES, **fields})  # type: ignore[arg-type]


def test_special_tokens_are_shown_only_where_they_are_marks_that_are_read() -> None:
    vocabulary = MarkingVocabulary(["[TOOL_CALLS]", "[THINK]", "[/THINK]"])
    template = ChatTemplate(reads_tools("[TOOL_CALLS][THINK]"))
    formats = text_formats(template, vocabulary, LocalModelSettings())
    ids = {mark: vocabulary.add(mark) for mark in ("[TOOL_CALLS]", "[THINK]", "[/THINK]")}
    reasoning = {ids["[THINK]"], ids["[/THINK]"]}
    assert shown_special_ids(formats, asked(tools=TOOLS)) == set(ids.values())
    assert shown_special_ids(formats, asked()) == reasoning
    assert shown_special_ids(formats, asked(tools=TOOLS, tool_choice=ToolChoice(mode="none"))) == reasoning
    assert shown_special_ids(formats, asked(messages=None, prompts=("hi",))) == frozenset()


@pytest.mark.parametrize("is_special", [True, False])
def test_a_mark_of_calls_ends_open_reasoning_only_where_no_text_can_be_it(is_special: bool) -> None:
    marks = {"[TOOL_CALLS]": 5} if is_special else {}
    formats = TextFormats(REASONING_FORMATS["mistral"], TOOL_FORMATS["mistral"], marks)
    pipeline = text_pipeline(formats, asked(tools=TOOLS), starts_inside=False, new_call_id=lambda: "c")
    assert pipeline is not None
    found = [*pipeline.feed('[THINK]so I call [TOOL_CALLS][{"name": "f", "arguments": {}}]'), *pipeline.flush()]
    assert pipeline.num_calls == int(is_special)
    assert any(isinstance(event, ReasoningDelta) for event, _, _ in found)


def test_an_answer_meets_a_parser_only_where_there_is_something_to_read() -> None:
    def line(formats: TextFormats, **fields: object) -> bool:
        return text_pipeline(formats, asked(**fields), starts_inside=False, new_call_id=lambda: "c") is not None

    tools = TextFormats(tools=TOOL_FORMATS["hermes"])
    reasoning = TextFormats(reasoning=REASONING_FORMATS["think"])
    assert not line(tools)
    assert not line(tools, tools=TOOLS, tool_choice=ToolChoice(mode="none"))
    assert not line(TextFormats(), tools=TOOLS)
    assert not line(reasoning, messages=None, prompts=("hi",))
    assert line(tools, tools=TOOLS)
    assert line(reasoning)
