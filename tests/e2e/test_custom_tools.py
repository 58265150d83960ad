"""Custom tools over HTTP on a local model: the input follows its grammar in every form of calls, chat and Responses."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import pytest
import pytest_asyncio

from tests.cases.tiny_model import write_model
from tests.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORMS = ("hermes", "llama3_json", "mistral", "pythonic", "qwen3_coder", "gemma", "deepseek_v31", "kimi_k2", "glm")
LINES = 'start: LINE "\\n" LINE\nLINE: "\\"" /[a-c\\\\]{1,3}/ "\\""'
"""Two lines of quoted letters and backslashes: all that JSON escapes."""
LINES_MATCH = re.compile(r'"[abc\\]{1,3}"\n"[abc\\]{1,3}"')
REGEX = r'[0-9]{2}"x"\n'
FORMATS: dict[str, tuple[dict[str, Any] | None, re.Pattern[str]]] = {
    "lark": ({"type": "grammar", "grammar": {"syntax": "lark", "definition": LINES}}, LINES_MATCH),
    "regex": ({"type": "grammar", "grammar": {"syntax": "regex", "definition": REGEX}}, re.compile(r'\d\d"x"\n')),
}


def template() -> str:
    return "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("tiny")
    source = write_model(folder / "model", window=4096)
    (folder / "template.jinja").write_text(template())
    rows = ", ".join(
        f'{form}: {{source: "{source}", chat_template: "{folder / "template.jinja"}", tool_format: {form}}}'
        for form in FORMS
    )
    text = (
        "version: 1\nstorage: {url: memory}\n"
        f"providers:\n  local: {{threads: 1, device: cpu, kv_cache: {{memory: 4MiB}}, models: {{{rows}}}}}\n"
    )
    async with serving(text) as url:
        yield url


def chat_tool(name: str) -> dict[str, Any]:
    form, _ = FORMATS[name]
    return {"type": "custom", "custom": {"name": name, "description": "Writes.", "format": form}}


def chat_body(model: str, name: str, **more: Any) -> dict[str, Any]:
    return {
        "model": f"local/{model}",
        "messages": [{"role": "user", "content": "Write"}],
        "tools": [chat_tool(name)],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 200,
        "seed": 3,
        **more,
    }


async def asked(url: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(url + path, json=body) as answer:
        return answer.status, await answer.json(content_type=None)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("form", FORMS)
async def test_a_custom_tools_input_follows_its_grammar_in_every_form_of_calls(url: str, form: str, name: str) -> None:
    status, answer = await asked(url, "/v1/chat/completions", chat_body(form, name))
    assert status == 200, answer
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert (call["type"], call["custom"]["name"]) == ("custom", name)
    assert FORMATS[name][1].fullmatch(call["custom"]["input"]), call
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_stream_has_the_same_input_in_pieces(url: str) -> None:
    _, whole = await asked(url, "/v1/chat/completions", chat_body("hermes", "lark"))
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        pieces: list[str] = []
        async for chunk in await client.chat.completions.create(**chat_body("hermes", "lark"), stream=True):
            for call in chunk.choices[0].delta.tool_calls or () if chunk.choices else ():
                pieces.append(call.model_dump()["custom"].get("input") or "")
    assert "".join(pieces) == whole["choices"][0]["message"]["tool_calls"][0]["custom"]["input"]
    assert len([piece for piece in pieces if piece]) > 3


async def test_a_tool_chosen_by_name_is_called_with_input_of_its_grammar(url: str) -> None:
    choice = {"type": "custom", "custom": {"name": "regex"}}
    tools = [chat_tool("lark"), chat_tool("regex")]
    body = chat_body("hermes", "lark", tools=tools, tool_choice=choice)
    status, answer = await asked(url, "/v1/chat/completions", body)
    assert status == 200, answer
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert FORMATS["regex"][1].fullmatch(call["custom"]["input"])


@pytest.mark.parametrize("stream", [False, True])
async def test_responses_give_a_custom_tool_call_with_its_own_events(url: str, stream: bool) -> None:
    tool = {
        "type": "custom",
        "name": "lines",
        "format": {"type": "grammar", "syntax": "lark", "definition": LINES},
    }
    body: dict[str, Any] = {
        "model": "local/hermes",
        "input": "Write",
        "tools": [tool],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_output_tokens": 200,
    }
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        if not stream:
            response = await client.responses.create(**body)
            (item,) = response.output
        else:
            deltas, kinds = [], []
            async for event in await client.responses.create(**body, stream=True):
                kinds.append(event.type)
                if event.type == "response.custom_tool_call_input.delta":
                    deltas.append(event.delta)
                if event.type == "response.custom_tool_call_input.done":
                    assert event.input == "".join(deltas)
                if event.type == "response.completed":
                    (item,) = event.response.output
            assert kinds.count("response.custom_tool_call_input.done") == 1
            assert len(deltas) > 3
    assert item.type == "custom_tool_call"
    assert LINES_MATCH.fullmatch(item.input)


async def test_a_call_and_its_output_go_back_to_the_model(url: str) -> None:
    call = {"id": "c1", "type": "custom", "custom": {"name": "lark", "input": 'a"\n'}}
    messages = [
        {"role": "user", "content": "Write"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    body = chat_body("hermes", "lark", messages=messages, tool_choice="none")
    status, answer = await asked(url, "/v1/chat/completions", body)
    assert status == 200, answer


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"type": "grammar", "grammar": {"syntax": "abnf", "definition": "x"}}, "custom.format.grammar.syntax"),
        ({"type": "grammar", "grammar": {"syntax": "lark"}}, "custom.format.grammar.definition"),
        (
            {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: ("}},
            "custom.format.grammar.definition",
        ),
        (
            {"type": "grammar", "grammar": {"syntax": "regex", "definition": "(?=a)"}},
            "custom.format.grammar.definition",
        ),
    ],
)
async def test_a_grammar_that_is_none_is_refused_by_its_place(url: str, form: dict[str, Any], param: str) -> None:
    tool = {"type": "custom", "custom": {"name": "t", "format": form}}
    status, answer = await asked(url, "/v1/chat/completions", chat_body("hermes", "lark", tools=[tool]))
    assert (status, answer["error"]["param"]) == (400, f"tools[0].{param}"), answer


async def test_free_text_is_any_input_beside_functions(url: str) -> None:
    free = {"type": "custom", "custom": {"name": "free"}}
    function = {
        "type": "function",
        "function": {
            "name": "f",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"a": {"enum": [1, 2]}},
                "required": ["a"],
                "additionalProperties": False,
            },
        },
    }
    allowed = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [{"type": "custom", "custom": {"name": "free"}}]},
    }
    _, answer = await asked(
        url,
        "/v1/chat/completions",
        chat_body("hermes", "lark", tools=[free, function], tool_choice=allowed, max_tokens=60),
    )
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["custom"]["name"] == "free"
    _, answer = await asked(
        url,
        "/v1/chat/completions",
        chat_body(
            "hermes", "lark", tools=[function, free], tool_choice={"type": "function", "function": {"name": "f"}}
        ),
    )
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["a"] in (1, 2)
