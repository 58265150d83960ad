"""The OpenAI SDK's accumulator over a streamed answer of a local model equals the answer that does not stream."""

from typing import Any

import openai
import pytest

from tests.cases.case import Case
from tests.cases.stage import Local, Stage, staged
from tests.providers.local.templates import CHATML_TOOLS

pytestmark = pytest.mark.timeout(20)

CASE = Case("SDK", {"request": {"method": "POST", "path": "/v1/chat/completions", "body": {"model": "local/x"}}})
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
CALLS = [
    f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'
    for city in ("Oslo", "Rome")
]
ANSWERS = {
    "reasoning and calls": "<think>\nTwo cities.\n</think>\n\nI look.\n" + "\n".join(CALLS),
    "calls alone": CALLS[0],
    "a call of a tool that is not there": "<tool_call>\n" + '{"name": "evil", "arguments": {}}' + "\n</tool_call>",
    "reasoning alone": "<think>\nHm",
    "text": "a <b> c",
    "nothing": "",
}


async def both(stage: Stage, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The choice that the SDK puts together from a stream, and the one that came whole."""
    asked: dict[str, Any] = {"model": "local/x", "messages": [{"role": "user", "content": "Weather?"}], **fields}
    async with openai.AsyncOpenAI(base_url=f"{stage.url}/v1", api_key="none", max_retries=0) as client:
        async with client.chat.completions.stream(**asked) as stream:
            streamed = await stream.get_final_completion()
        whole = await client.chat.completions.create(**asked)
    return essence(streamed.choices[0]), essence(whole.choices[0])


def essence(choice: Any) -> dict[str, Any]:
    """What both forms say. Ids of calls are the gateway's, anew for each answer."""
    message = choice.message
    return {
        "finish": choice.finish_reason,
        "content": message.content or None,
        "reasoning": getattr(message, "reasoning_content", None),
        "calls": [(call.function.name, call.function.arguments) for call in message.tool_calls or ()],
        "ids are unique": len({call.id for call in message.tool_calls or ()}) == len(message.tool_calls or ()),
        "logprobs": [entry.token for entry in (choice.logprobs.content if choice.logprobs else None) or ()],
    }


@pytest.mark.parametrize("text", ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("fields", [{}, {"logprobs": True}, {"parallel_tool_calls": False}], ids=str)
async def test_the_sdks_accumulator_gives_the_whole_answer(text: str, fields: dict[str, Any]) -> None:
    local = Local(template=CHATML_TOOLS)
    async with staged(CASE, local=local) as stage:
        for pieces in ([text], list(text), [text[:20], text[20:33], text[33:]]):
            local.says(*filter(None, pieces))
            streamed, whole = await both(stage, tools=TOOLS, **fields)
            assert streamed == whole


async def test_the_sdk_sees_calls_reasoning_and_text_apart() -> None:
    local = Local(template=CHATML_TOOLS)
    async with staged(CASE, local=local) as stage:
        local.says(*ANSWERS["reasoning and calls"])
        streamed, _ = await both(stage, tools=TOOLS)
        assert streamed == {
            "finish": "tool_calls",
            "content": "I look.",
            "reasoning": "Two cities.",
            "calls": [("get_weather", '{"city": "Oslo"}'), ("get_weather", '{"city": "Rome"}')],
            "ids are unique": True,
            "logprobs": [],
        }


async def test_reasoning_is_counted_in_the_usage_and_hidden_when_asked() -> None:
    local = Local(template=CHATML_TOOLS)
    body = {"model": "local/x", "messages": [{"role": "user", "content": "Hi"}], "logprobs": True}
    async with staged(CASE, local=local) as stage:
        local.says("<think>", "plan", "ning", "</think>", "done")
        for reply in (await stage.post(body), await stage.post({**body, "include_reasoning": False})):
            usage = reply.ok["usage"]
            assert usage["completion_tokens"] == 5
            assert usage["completion_tokens_details"]["reasoning_tokens"] == 2
        (choice,) = reply.ok["choices"]
        assert "reasoning_content" not in choice["message"]
        assert choice["message"]["content"] == "done"
        assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["done"]
        assert b"plan" not in reply.body


async def test_tools_are_refused_by_name_where_the_form_of_calls_is_not_known() -> None:
    template = "{% for tool in tools %}{{ tool }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    body = {"model": "local/x", "messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS}
    async with staged(CASE, local=Local(template=template)) as stage:
        refused = await stage.post(body)
        assert (refused.status, refused.error["param"]) == (400, "tools")
    async with staged(CASE, local=Local(template=template, settings={"tool_format": "hermes"})) as stage:
        assert (await stage.post(body)).status == 200
    drop = {"server": {"unsupported_params": "drop"}}
    async with staged(CASE, local=Local(template=template), config=drop) as stage:
        await stage.post({**body, "tools": None})  # what the model lacks is known once it is loaded
        assert (await stage.post(body)).headers["x-gateway-dropped-params"] == "tools"


async def test_the_effort_reaches_a_template_that_reads_it_and_is_refused_by_name_elsewhere() -> None:
    body = {"model": "local/x", "messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "none"}
    async with staged(CASE, local=Local(template=CHATML_TOOLS)) as stage:
        assert (await stage.post(body)).status == 200
        assert stage.local.prompt().endswith("<think></think>")
        assert (await stage.post({**body, "reasoning_effort": "high"})).status == 200
        assert not stage.local.prompt().endswith("</think>")
    async with staged(CASE) as stage:
        assert (await stage.post(body)).status == 200  # it never thinks, so not to think asks for nothing
        refused = await stage.post({**body, "reasoning_effort": "high"})
        assert (refused.status, refused.error["param"]) == (400, "reasoning_effort")


async def test_an_answer_starts_inside_the_reasoning_where_the_prompt_has_opened_it() -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<think>\n' if add_generation_prompt }}"
    body = {"model": "local/x", "messages": [{"role": "user", "content": "Hi"}]}
    async with staged(CASE, local=Local(template=template)) as stage:
        stage.local.says("pl", "an\n</th", "ink>\n\nHi")
        for reply in await stage.both(body):
            assert reply.status == 200
        (choice,) = reply.ok["choices"]
        assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == ("plan", "Hi")
