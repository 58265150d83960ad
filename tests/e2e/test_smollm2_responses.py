"""The real small model behind the Responses API, with a real MCP server, asked with the openai SDK: what the other
tests of that model leave out."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Literal

import openai
import pytest
import pytest_asyncio
from pydantic import BaseModel

from tests.gateway.tools.serving import COMMAND
from tests.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
MODEL = "smollm2-135m-instruct"
QUESTION = "What is the capital of Germany?"
SMALL = {"type": "mcp", "server_label": "small", "require_approval": "never", "allowed_tools": ["add"]}
CONFIG = f"""
version: 1
providers: {{local: {{type: local, model: {MODEL}}}}}
tools: {{mcp: {{small: {{command: {json.dumps(COMMAND)}}}}}}}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(smollm2_path: object) -> AsyncIterator[str]:
    """`smollm2_path` is fetched, so the gateway finds the model in the cache."""
    async with serving(CONFIG) as url:
        yield f"{url}/v1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=url, api_key="unused", max_retries=0, timeout=110) as found:
        yield found


async def test_a_model_calls_a_tool_of_an_mcp_server_and_goes_on_with_what_it_gave(client: openai.AsyncOpenAI) -> None:
    asked: Any = {
        "model": MODEL,
        "input": "Add 2 and 3.",
        "temperature": 0,
        "max_output_tokens": 64,
        "tools": [SMALL],
        "tool_choice": {"type": "mcp", "server_label": "small", "name": "add"},
    }
    async with client.responses.stream(**asked) as events:
        seen = [event.type async for event in events]
        streamed = await events.get_final_response()
    whole = await client.responses.create(**asked)
    responses: list[Any] = [streamed, whole]
    for response in responses:
        call: Any = response.output[1]
        assert call.type == "mcp_call"
        numbers = json.loads(call.arguments)  # its schema bound the model
        assert call.output == str(numbers["a"] + numbers["b"])
        details = response.usage.input_tokens_details.to_dict()
        first, second = details["input_tokens_per_turn"]
        assert first + second == response.usage.input_tokens
        assert second > first
    assert seen.count("response.mcp_call.completed") == 1
    assert streamed.output_text == whole.output_text
    assert [item.type for item in streamed.output] == [item.type for item in whole.output]


class City(BaseModel):
    name: Literal["Berlin", "Paris"]


async def test_parse_lists_compaction_and_deletion(client: openai.AsyncOpenAI) -> None:
    responses = client.responses
    parsed = await responses.parse(model=MODEL, input=QUESTION, text_format=City, temperature=0)
    assert isinstance(parsed.output_parsed, City)
    listed = await responses.input_items.list(parsed.id)
    assert [item.type for item in listed.data] == ["message"]
    made = await responses.compact(model=MODEL, input=QUESTION)
    assert [item.type for item in made.output] == ["message", "compaction"]
    await responses.delete(parsed.id)
    with pytest.raises(openai.NotFoundError):
        await responses.retrieve(parsed.id)


async def test_over_a_websocket(client: openai.AsyncOpenAI) -> None:
    async with client.responses.connect() as connection:
        await connection.response.create(model=MODEL, input=QUESTION, temperature=0)
        async for event in connection:
            if event.type == "response.completed":
                assert "Berlin" in event.response.output_text
                return


@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")  # of the SDK's own use of its library
async def test_the_synchronous_sdk(url: str) -> None:
    def use() -> None:
        with openai.OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=110) as client:
            asked: Any = {"model": MODEL, "input": QUESTION, "temperature": 0}
            made = client.responses.create(**asked)
            assert client.responses.retrieve(made.id).output_text == made.output_text
            with client.responses.stream(**asked) as events:
                assert events.get_final_response().output_text == made.output_text
            talk = client.conversations.create()
            client.responses.create(conversation=talk.id, **asked)
            assert len(list(client.conversations.items.list(talk.id))) == 2
            with client.responses.connect() as connection:
                connection.response.create(**asked)
                assert next(iter(connection)).type == "response.created"

    await asyncio.to_thread(use)
