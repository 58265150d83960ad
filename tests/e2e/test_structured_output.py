"""The real small model under constraint, over HTTP: whatever it would rather say, its answers parse and validate."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import jsonschema
import openai
import pytest
import pytest_asyncio

from tests.e2e.schemas import SCHEMAS
from tests.serving import serving

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

MODEL = "smollm2-135m-instruct"
MAX_TOKENS = 400
NAMES = sorted(SCHEMAS)
FEW, ALL = NAMES[::9], NAMES
SLOW = pytest.mark.slow
AT_A_TIME = 12


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        serving(f"version: 1\nproviders:\n  local: {{threads: 2, model: {MODEL}}}\n") as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=500) as opened,
    ):
        yield opened


def asked(name: str, *, seed: int = 1) -> dict[str, Any]:
    prompt = f"Tell me something as JSON: {name}."
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": MAX_TOKENS,
        "seed": seed,
        "temperature": 1.0,
    }


def as_format(schema: Any, *, strict: bool | None) -> Any:
    inner = {"name": "answer", "schema": schema} | ({} if strict is None else {"strict": strict})
    return {"type": "json_schema", "json_schema": inner}


def as_tool(name: str, schema: Any) -> dict[str, Any]:
    """A strict tool with one argument of this schema."""
    shared = {key: schema[key] for key in ("$defs", "definitions", "$schema") if key in schema}
    whole = {"type": "object", "properties": {"value": schema}, "required": ["value"], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": {**shared, **whole}, "strict": True}}


async def answered(client: openai.AsyncOpenAI, fields: dict[str, Any], *, stream: bool) -> Any:
    """The one choice, put together by the SDK where it is streamed."""
    if not stream:
        return (await client.chat.completions.create(**fields)).choices[0]
    async with client.chat.completions.stream(**fields) as events:
        return (await events.get_final_completion()).choices[0]


def check(text: str, schema: Any) -> None:
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator(schema, format_checker=jsonschema.FormatChecker()).validate(json.loads(text))


async def for_all(names: list[str], ask: Any) -> None:
    """Several at a time, so that one batch holds many grammars."""
    turns = asyncio.Semaphore(AT_A_TIME)

    async def one(name: str) -> None:
        async with turns:
            await ask(name)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(name))


@pytest.mark.parametrize(
    ("names", "stream"),
    [
        pytest.param(FEW, True, id="few, streamed"),
        pytest.param(ALL, True, id="all, streamed", marks=SLOW),
        pytest.param(ALL, False, id="all, whole", marks=SLOW),
    ],
)
async def test_an_answer_in_a_schema_always_validates(
    client: openai.AsyncOpenAI, names: list[str], stream: bool
) -> None:
    async def ask(name: str) -> None:
        schema, strict = SCHEMAS[name], (None, True, False)[len(name) % 3]
        fields = {**asked(name), "response_format": as_format(schema, strict=strict)}
        choice = await answered(client, fields, stream=stream)
        assert choice.finish_reason == "stop", name
        check(choice.message.content, schema)

    await for_all(names, ask)


@pytest.mark.parametrize(
    ("names", "stream"),
    [
        pytest.param(FEW, False, id="few, whole"),
        pytest.param(ALL, True, id="all, streamed", marks=SLOW),
        pytest.param(ALL, False, id="all, whole", marks=SLOW),
    ],
)
async def test_a_forced_call_always_has_valid_arguments(
    client: openai.AsyncOpenAI, names: list[str], stream: bool
) -> None:
    async def ask(name: str) -> None:
        tools = [as_tool("give", SCHEMAS[name]), as_tool("other", {"type": "boolean"})]
        is_named = len(name) % 2 == 0
        choice = {"type": "function", "function": {"name": "give"}} if is_named else "required"
        fields = {**asked(name), "tools": tools, "tool_choice": choice, "parallel_tool_calls": False}
        found = await answered(client, fields, stream=stream)
        assert found.finish_reason == ("stop" if is_named else "tool_calls"), name
        (call,) = found.message.tool_calls
        assert is_named is False or call.function.name == "give"
        parameters = next(
            tool["function"]["parameters"] for tool in tools if tool["function"]["name"] == call.function.name
        )
        check(call.function.arguments, parameters)
        assert not found.message.content

    await for_all(names, ask)


@pytest.mark.parametrize("names", [pytest.param(FEW[::2], id="few"), pytest.param(ALL, id="all", marks=SLOW)])
async def test_beside_tools_an_answer_is_in_its_schema_or_a_valid_call(
    client: openai.AsyncOpenAI, names: list[str]
) -> None:
    async def ask(name: str) -> None:
        tool = as_tool("give", {"type": "integer", "minimum": 0, "maximum": 99})
        fields = {**asked(name), "tools": [tool], "parallel_tool_calls": False}
        fields["response_format"] = as_format(SCHEMAS[name], strict=True)
        found = await answered(client, fields, stream=False)
        if found.message.tool_calls:
            check(found.message.tool_calls[0].function.arguments, tool["function"]["parameters"])
            assert found.finish_reason == "tool_calls"
        else:
            check(found.message.content, SCHEMAS[name])
            assert found.finish_reason == "stop"

    await for_all(names, ask)


async def test_the_other_constraints_hold_on_chat_completions_and_responses(client: openai.AsyncOpenAI) -> None:
    number = {"type": "integer", "minimum": 0, "maximum": 9}
    bodies: list[tuple[dict[str, Any], set[str]]] = [
        ({"guided_choice": ["north", "south"]}, {"north", "south"}),
        ({"structured_outputs": {"regex": "[ab]{2}"}}, {"aa", "ab", "ba", "bb"}),
        ({"grammar": 'root ::= "x" | "y"'}, {"x", "y"}),
        ({"ebnf": 'root ::= "x" | "y"'}, {"x", "y"}),
        ({"guided_grammar": 'start: "x" | "y"'}, {"x", "y"}),
        ({"json_schema": number}, set(map(str, range(10)))),
    ]
    for body, expected in bodies:
        chat = await client.chat.completions.create(**asked("a direction"), extra_body=body)
        text = await client.completions.create(model=MODEL, prompt="Go", max_tokens=20, seed=1, extra_body=body)
        response = await client.responses.create(model=MODEL, input="Go", max_output_tokens=20, extra_body=body)
        assert {chat.choices[0].message.content, text.choices[0].text, response.output_text} <= expected, body


async def test_clients_of_other_protocols_are_held_to_forms_and_tools_too(client: openai.AsyncOpenAI) -> None:
    schema = SCHEMAS["one number"]
    tool = {"name": "give", "description": "Gives.", "input_schema": schema}
    asked_of_anthropic = {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "Give me one."}]}
    choice = {"type": "tool", "name": "give"}
    named = await posted(client, "messages", {**asked_of_anthropic, "tools": [tool], "tool_choice": choice})
    assert named["stop_reason"] == "tool_use"
    check(json.dumps(named["content"][0]["input"]), schema)
    formed = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    check((await posted(client, "messages", {**asked_of_anthropic, **formed}))["content"][0]["text"], schema)
    contents = [{"role": "user", "parts": [{"text": "Give me one."}]}]
    config = {"responseMimeType": "application/json", "responseJsonSchema": schema, "maxOutputTokens": 100}
    body = {"contents": contents, "generationConfig": config}
    gemini = await posted(client, f"../v1beta/models/{MODEL}:generateContent", body)
    check(gemini["candidates"][0]["content"]["parts"][0]["text"], schema)
    messages = [{"role": "user", "content": "Give me one."}]
    ollama = await posted(
        client, "../api/chat", {"model": MODEL, "messages": messages, "stream": False, "format": schema}
    )
    check(ollama["message"]["content"], schema)


async def posted(client: openai.AsyncOpenAI, path: str, body: dict[str, Any]) -> Any:
    async with aiohttp.ClientSession() as session, session.post(f"{client.base_url}{path}", json=body) as answer:
        found = await answer.json()
    assert answer.status == 200, found
    return found


async def test_the_choices_of_one_request_and_beams_are_all_constrained(client: openai.AsyncOpenAI) -> None:
    schema = SCHEMAS["two fields"]
    fields = {**asked("a person"), "response_format": as_format(schema, strict=True), "n": 3}
    sampled = await client.chat.completions.create(**fields)
    beams = await client.chat.completions.create(**fields, extra_body={"use_beam_search": True})
    for choice in (*sampled.choices, *beams.choices):
        assert choice.message.content is not None
        check(choice.message.content, schema)


async def test_log_probabilities_cover_a_constrained_answer(client: openai.AsyncOpenAI) -> None:
    fields = {**asked("a point"), "response_format": as_format(SCHEMAS["one number"], strict=True)}
    answer = await client.chat.completions.create(**fields, logprobs=True, top_logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert "".join(entry.token for entry in logprobs.content or ()) == answer.choices[0].message.content


async def test_a_bad_schema_is_a_400_with_its_place_and_hurts_nobody_else(client: openai.AsyncOpenAI) -> None:
    good = asyncio.create_task(client.chat.completions.create(**asked("anything") | {"max_tokens": 20}))
    broken = {"type": "object", "properties": {"a": {"type": "string"}, "b": "oops"}}
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(**asked("x"), response_format=as_format(broken, strict=True))
    assert caught.value.param == "response_format.json_schema.schema.properties.b"
    lax = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    with pytest.raises(openai.BadRequestError) as unenforced:
        await client.chat.completions.create(**asked("x"), response_format=as_format(lax, strict=True))
    assert unenforced.value.param == "response_format.json_schema.schema.uniqueItems"
    assert (await good).choices[0].finish_reason in ("stop", "length")
