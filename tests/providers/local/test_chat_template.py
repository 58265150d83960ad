import json
import traceback
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from adapters.canonical.errors import InvalidRequest
from providers.local.chat_template import ChatTemplate, TemplateRefusal, load_chat_template
from providers.local.template_sandbox import MAX_CHARS
from tests.providers.local import templates

Messages = list[dict[str, Any]]

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "wetter",
            "description": "Gives the 'weather' <now> & later: größer",
            "parameters": {"type": "object", "properties": {"ort": {"type": "string", "enum": ["Łódź", "東京"]}}},
        },
    }
]
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "wetter", "arguments": {"ort": "東京", "n": 1.5, "x": None}},
}
CONVERSATIONS: list[Messages] = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": " Rhyme. "}, {"role": "user", "content": "Hi\n"}],
    [
        {"role": "user", "content": "1 < 2 & \"quotes\" 'x' {{ no }} {% no %}"},
        {"role": "assistant", "content": "  yes  "},
        {"role": "user", "content": "😊 naïve"},
    ],
    [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "time?", "name": "ann"},
        {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "12:00", "tool_call_id": "c1", "name": "wetter"},
        {"role": "assistant", "content": "noon", "reasoning_content": "12"},
    ],
]
NAMES = ["CHATML", "CHATML_TOOLS", "LLAMA3", "STRICT", "NO_SYSTEM", "FORGETFUL", "PARTS", "EITHER", "CONTENT_ONLY"]


def template(name: str, **settings: Any) -> ChatTemplate:
    return ChatTemplate(getattr(templates, name), bos_token="<s>", eos_token="</s>", **settings)


@pytest.mark.parametrize("generates", [True, False])
@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_those_that_transformers_renders(
    name: str, tools: list[dict[str, Any]] | None, generates: bool
) -> None:
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE({"<s>": 0, "</s>": 1}, []))
    oracle = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    oracle.chat_template = getattr(templates, name)
    ours = template(name)
    compared = 0
    for conversation in CONVERSATIONS:
        options: dict[str, Any] = {"date_string": "1 May 2026", "enable_thinking": False}
        try:
            expected = oracle.apply_chat_template(
                conversation, tools=tools, add_generation_prompt=generates, tokenize=False, **options
            )
        except Exception:
            with pytest.raises(TemplateRefusal):
                ours.render(conversation, tools=tools, add_generation_prompt=generates, kwargs=options)
            continue
        compared += 1
        assert ours.render(conversation, tools=tools, add_generation_prompt=generates, kwargs=options) == expected
    assert compared >= 2


def test_the_clock_is_the_one_that_was_given() -> None:
    ours = template("LLAMA3", clock=lambda: datetime(2026, 3, 9))
    assert "Today Date: 09 Mar 2026" in ours.render(CONVERSATIONS[0])


@pytest.mark.parametrize(
    ("messages", "index"),
    [
        ([("user", "a"), ("user", "b")], 1),
        ([("user", "a"), ("assistant", "b"), ("user", "c"), ("tool", "d"), ("user", "e")], 3),
        ([("assistant", "a"), ("user", "b")], 0),
        ([("system", "a"), ("user", "b"), ("system", "c"), ("user", "d")], 2),
    ],
)
def test_a_refused_message_is_named_and_the_template_is_not_shown(messages: list[tuple[str, str]], index: int) -> None:
    with pytest.raises(TemplateRefusal) as caught:
        template("STRICT").render([{"role": role, "content": content} for role, content in messages])
    assert caught.value.index == index
    assert caught.value.param == f"messages[{index}]"
    assert caught.value.status == 400
    assert "SECRET" not in caught.value.message
    assert "SECRET" in "".join(traceback.format_exception(caught.value))  # for the log


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].nothing.at.all }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{% include 'x' %}",
        "{{ nofunction() }}",
    ],
)
def test_a_template_that_fails_or_reaches_out_is_a_400_without_its_text(source: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ChatTemplate(source).render([{"role": "user", "content": "hi"}])
    assert caught.value.status == 400
    assert source not in caught.value.message
    assert "{%" not in caught.value.message
    assert "{{" not in caught.value.message


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) if j < 0 %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ range(99999) | list | length }}{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
        f"{{{{ 'x' * {MAX_CHARS + 1} }}}}",
        f"{{{{ {MAX_CHARS + 1} * 'x' }}}}",
        "{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ range(999999999) | list }}",
        "{{ lipsum(n=100000000) }}",
    ],
)
def test_a_template_that_runs_away_is_stopped(source: str) -> None:
    with pytest.raises(TemplateRefusal):
        ChatTemplate(source).render([{"role": "user", "content": "hi"}])


def test_a_template_that_ran_away_does_not_spend_the_next_rendering() -> None:
    ours = ChatTemplate("{% for i in range(messages | length) %}{% for j in range(80000) %}{% endfor %}{% endfor %}ok")
    with pytest.raises(TemplateRefusal):
        ours.render([{}] * 13)
    assert ours.render([{}]) == "ok"


def test_a_source_that_is_no_template_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidRequest, match="line 2") as caught:
        ChatTemplate("fine\n{% if secret %}")
    assert "secret" not in caught.value.message


def test_a_template_says_which_tools_roles_and_variables_it_knows() -> None:
    assert template("CHATML_TOOLS").knows_tools
    assert not template("CHATML").knows_tools
    assert template("CHATML_TOOLS").knows_role("tool")
    assert not template("CHATML").knows_role("developer")
    assert template("DEVELOPER").knows_role("developer")
    assert template("CHATML_TOOLS").reads_field("tool_calls")
    assert not template("CHATML").reads_field("tool_calls")
    assert "enable_thinking" in template("CHATML_TOOLS").variables


@pytest.mark.parametrize(("name", "form"), [("CHATML", "text"), ("PARTS", "parts"), ("EITHER", "either")])
def test_a_template_says_what_it_takes_as_content(name: str, form: str) -> None:
    assert template(name).content_form == form


def write(folder: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


NAMED = [{"name": "default", "template": "default"}, {"name": "tool_use", "template": "for tools"}]


@pytest.mark.parametrize(
    ("files", "default", "with_tools"),
    [
        ({"tokenizer_config.json": {"chat_template": "one{{ bos_token }}"}}, "one<s>", None),
        ({"tokenizer_config.json": {"chat_template": NAMED}}, "default", "for tools"),
        ({"tokenizer_config.json": {"chat_template": "old"}, "chat_template.jinja": "new"}, "new", None),
        ({"chat_template.json": {"chat_template": "processor's"}}, "processor's", None),
        (
            {"chat_template.jinja": "main", "additional_chat_templates/tool_use.jinja": "for tools"},
            "main",
            "for tools",
        ),
    ],
)
def test_a_folders_template_is_found_wherever_models_keep_it(
    tmp_path: Path, files: dict[str, object], default: str, with_tools: str | None
) -> None:
    found = load_chat_template(write(tmp_path, files), bos_token="<s>", eos_token="")
    assert found is not None
    assert found.render([]) == default
    assert (found.for_tools.render([]) if found.for_tools else None) == with_tools


def test_a_folder_without_template_has_none(tmp_path: Path) -> None:
    assert load_chat_template(write(tmp_path, {"tokenizer_config.json": {}}), bos_token="", eos_token="") is None


@pytest.mark.parametrize("content", ["{", "[]", {"chat_template": [{"name": "default"}]}])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: object) -> None:
    folder = write(tmp_path, {"chat_template.json": content})
    with pytest.raises(InvalidRequest, match=r"chat_template\.json"):
        load_chat_template(folder, bos_token="", eos_token="")


def test_the_builtin_models_template_is_read_from_its_file(smollm2_path: Path) -> None:
    found = load_chat_template(smollm2_path, bos_token="<|im_start|>", eos_token="<|im_end|>")
    assert found is not None
    assert found.render([{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_what_a_template_writes_or_looks_for_is_known_and_what_it_says_in_comments_is_not() -> None:
    template = ChatTemplate("{# <a> #}<b>{{ '<c>' }}{% if '<d>' in x %}{% endif %}{{ y }}")
    assert [mark for mark in ("<a>", "<b>", "<c>", "<d>") if template.mentions(mark)] == ["<b>", "<c>", "<d>"]
