"""The real small model behind the real gateway on a real socket, asked with the openai SDK."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import openai
import pytest
import pytest_asyncio
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.config import parse_config
from gateway.server.app import build_app
from gateway.server.provider_building import build_providers
from providers.local.provider import LocalProvider
from tests.serving import listening

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "smollm2-135m-instruct"
README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
QUESTION = "What is the capital of Germany?"


@dataclass
class Served:
    client: openai.AsyncOpenAI
    provider: LocalProvider
    url: str


@asynccontextmanager
async def serving(local: str) -> AsyncIterator[Served]:
    """A gateway with one provider, `local` in YAML."""
    config = parse_config(f"version: 1\nproviders:\n  local: {local}\n", {}, provider_types=["local"])
    providers = build_providers(config)
    provider = providers["local"]
    assert isinstance(provider, LocalProvider)
    async with (
        listening(build_app(config, providers=providers)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=110) as client,
    ):
        yield Served(client, provider, f"{url}/v1")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(smollm2_path: Path) -> AsyncIterator[Served]:
    """`smollm2_path` is fetched, so the gateway finds the model in the cache."""
    async with serving(f"{{type: local, model: {MODEL}}}") as found:
        yield found


async def ask(served: Served, text: str = QUESTION, **options: Any) -> ChatCompletion:
    answer = await served.client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": text}], **{"temperature": 0, **options}
    )
    assert isinstance(answer, ChatCompletion)
    return answer


async def stream(served: Served, text: str = QUESTION, **options: Any) -> list[ChatCompletionChunk]:
    chunks = await served.client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": text}], stream=True, **{"temperature": 0, **options}
    )
    return [chunk async for chunk in chunks]


def text_of(chunks: list[ChatCompletionChunk], choice: int = 0) -> str:
    return "".join(found.delta.content or "" for chunk in chunks for found in chunk.choices if found.index == choice)


async def test_it_knows_the_capital_of_germany(served: Served) -> None:
    answer = await ask(served)
    assert "Berlin" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_without_any_knob_it_answers_sensibly(served: Served) -> None:
    for _ in range(3):
        answer = await served.client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": QUESTION}]
        )
        assert answer.choices[0].message.content == "The capital of Germany is Berlin."


async def test_streamed_text_equals_the_body(served: Served) -> None:
    whole = await ask(served)
    chunks = await stream(served, stream_options={"include_usage": True})
    assert text_of(chunks) == whole.choices[0].message.content
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


async def test_tokens_are_looked_up_unless_run_yaml_says_otherwise_and_the_answer_is_the_same(served: Served) -> None:
    asked: dict[str, Any] = {
        "text": "Repeat this five times: the quick brown fox jumps over the lazy dog.",
        "max_tokens": 60,
        "logprobs": True,
        "extra_body": {"ignore_eos": True},
    }
    guessed = await ask(served, **asked)
    stats = served.provider.engine_stats(MODEL)
    assert stats is not None
    assert stats.accepted_draft_tokens > 5
    async with serving(f"{{type: local, models: {{{MODEL}: {{speculative: {{kind: none}}}}}}}}") as plain:
        told = await ask(plain, **asked)
        stats = plain.provider.engine_stats(MODEL)
    assert stats is not None
    assert stats.accepted_draft_tokens == stats.rejected_draft_tokens == 0
    assert guessed.choices == told.choices
    assert guessed.usage is not None
    assert told.usage is not None
    assert guessed.usage.completion_tokens_details == told.usage.completion_tokens_details


async def test_the_responses_api_answers_alike_streamed_and_whole_and_goes_on_from_its_own_output(
    served: Served,
) -> None:
    asked: Any = {"model": MODEL, "temperature": 0, "instructions": "Be brief."}
    whole = await served.client.responses.create(input=QUESTION, **asked)
    async with served.client.responses.stream(input=QUESTION, **asked) as stream:
        final = await stream.get_final_response()
    assert "German" in whole.output_text
    assert final.output_text == whole.output_text
    assert final.usage is not None
    assert whole.usage is not None
    assert final.usage.total_tokens == whole.usage.total_tokens
    items: list[Any] = [{"role": "user", "content": QUESTION}, *[item.to_dict() for item in whole.output]]
    items.append({"role": "user", "content": "And of Italy?"})
    follow_up = await served.client.responses.create(input=items, **asked)
    assert "German" in follow_up.output_text  # which the last question does not name
    cut = await served.client.responses.create(input=QUESTION, max_output_tokens=2, **asked)
    assert (cut.status, cut.output[0].to_dict()["status"]) == ("incomplete", "incomplete")


async def test_a_background_response_is_resumed_continued_cancelled_and_kept(served: Served) -> None:
    responses = served.client.responses
    asked: Any = {"model": MODEL, "temperature": 0}
    made = await responses.create(input=QUESTION, background=True, stream=True, **asked)
    first = await anext(made)
    assert first.type == "response.created"
    await made.close()
    async with responses.stream(response_id=first.response.id, starting_after=0) as resumed:
        final = await resumed.get_final_response()
    assert "Berlin" in final.output_text
    assert await responses.retrieve(first.response.id) == (await responses.retrieve(final.id))
    follow_up = await responses.create(input="And of Italy?", previous_response_id=final.id, **asked)
    counted = await responses.input_tokens.count(model=MODEL, input="And of Italy?", previous_response_id=final.id)
    assert follow_up.usage is not None
    assert counted.input_tokens == follow_up.usage.input_tokens
    endless: Any = {"ignore_eos": True, "max_output_tokens": 1500}
    long = await responses.create(input="Tell me a story.", background=True, extra_body=endless, **asked)
    assert (await responses.cancel(long.id)).status == "cancelled"
    talk = await served.client.conversations.create()
    await responses.create(input=QUESTION, conversation=talk.id, **asked)
    assert len((await served.client.conversations.items.list(talk.id)).data) == 2


async def test_n_choices_differ_and_repeat_with_their_seed(served: Served) -> None:
    options = {"n": 2, "seed": 7, "temperature": 1.0, "max_tokens": 12}
    first = await ask(served, "Name an animal.", **options)
    second = await ask(served, "Name an animal.", **options)
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1]
    assert texts[0] != texts[1]
    assert texts == [choice.message.content for choice in second.choices]
    streamed = await stream(served, "Name an animal.", **options)
    assert [text_of(streamed, 0), text_of(streamed, 1)] == texts


async def test_logprobs_cover_every_token_and_their_bytes_are_the_text(served: Served) -> None:
    answer = await ask(served, logprobs=True, top_logprobs=3, extra_body={"repetition_penalty": 1.0})
    choice = answer.choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert answer.usage is not None
    assert len(choice.logprobs.content) == answer.usage.completion_tokens
    joined = b"".join(bytes(entry.bytes or []) for entry in choice.logprobs.content)
    assert joined.decode() == choice.message.content
    for entry in choice.logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token  # greedy takes the likeliest
        assert entry.logprob <= 0


async def test_a_stop_string_ends_the_answer_before_itself(served: Served) -> None:
    answer = await ask(served, stop=["Berlin"])
    assert answer.choices[0].finish_reason == "stop"
    content = answer.choices[0].message.content
    assert content is not None
    assert "Berlin" not in content
    assert content.startswith("The capital")
    assert text_of(await stream(served, stop=["Berlin"])) == content


async def test_max_tokens_cuts_with_finish_reason_length(served: Served) -> None:
    answer = await ask(served, max_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


async def test_completions_take_several_prompts_and_echo_with_logprobs(served: Served) -> None:
    answer = await served.client.completions.create(
        model=MODEL, prompt=["Once upon a", "The sky is"], max_tokens=4, temperature=0, echo=True, logprobs=1, n=2
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[0].text.startswith("Once upon a")
    assert answer.choices[2].text.startswith("The sky is")
    for choice in answer.choices:
        logprobs = choice.logprobs
        assert logprobs is not None
        assert logprobs.tokens is not None
        assert "".join(logprobs.tokens) == choice.text
        assert logprobs.token_logprobs is not None
        values: list[float | None] = list(logprobs.token_logprobs)  # the SDK's type denies the null
        assert [place for place, value in enumerate(values) if value is None] == [0]
        assert logprobs.text_offset == [len("".join(logprobs.tokens[:i])) for i in range(len(logprobs.tokens))]


async def test_sixteen_streams_together_equal_the_same_one_by_one(served: Served) -> None:
    prompts = [f"Write one sentence about the number {i}." for i in range(16)]
    alone = [text_of(await stream(served, prompt, max_tokens=16)) for prompt in prompts]
    tasks = [asyncio.create_task(stream(served, prompt, max_tokens=16)) for prompt in prompts]
    most_running = 0
    while not all(task.done() for task in tasks):
        stats = served.provider.engine_stats(MODEL)
        assert stats is not None
        most_running = max(most_running, stats.running)
        await asyncio.sleep(0.005)
    assert [text_of(task.result()) for task in tasks] == alone
    assert most_running > 8, "the streams were not batched"


@pytest.mark.parametrize("streams", [True, False])
async def test_a_killed_client_frees_its_blocks_within_a_second(served: Served, streams: bool) -> None:
    body = (
        b'{"model": "smollm2-135m-instruct", "max_tokens": 4000, "ignore_eos": true, "stream": %s, '
        b'"messages": [{"role": "user", "content": "Count."}]}' % (b"true" if streams else b"false")
    )
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(served.url).port)
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await until(served, running=1, within_s=20)
    writer.transport.abort()
    await until(served, running=0, within_s=1)
    stats = served.provider.engine_stats(MODEL)
    assert stats is not None
    assert stats.blocks_used == 0


async def until(served: Served, *, running: int, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while True:
            stats = served.provider.engine_stats(MODEL)
            if stats is not None and stats.running == running:
                return
            await asyncio.sleep(0.005)


async def test_a_prompt_over_the_window_is_refused_with_both_numbers(served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(served, "word " * 9000)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "messages"
    assert "8192" in caught.value.message
    assert "Berlin" in ((await ask(served)).choices[0].message.content or "")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"seed": 2**64}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"extra_body": {"nonsense": 1}}, "nonsense"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
        ({"extra_body": {"stop_token_ids": [10**6]}}, "stop_token_ids"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"response_format": {"type": "grammar", "grammar": "start: ["}}, "response_format.grammar"),
    ],
)
async def test_bad_or_unsupported_input_is_a_400_that_names_the_field(
    served: Served, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(served, **options)
    assert caught.value.param == param


async def test_the_readmes_curl_is_answered(served: Served) -> None:
    body = README[README.index("-d '") + 4 :].partition("'")[0]
    async with aiohttp.ClientSession() as session:
        headers = {"content-type": "application/json"}
        async with session.post(f"{served.url}/chat/completions", data=body, headers=headers) as answer:
            assert answer.status == 200
            assert "Berlin" in (await answer.json())["choices"][0]["message"]["content"]


async def test_the_readmes_python_runs(served: Served) -> None:
    indented = README[README.index("    from openai import OpenAI") :].partition("\n\n`gateway chat")[0]
    program = textwrap.dedent(indented).replace("http://127.0.0.1:8080/v1", served.url)
    assert served.url in program
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert len(done.stdout.split()) > 20, "a short story"
