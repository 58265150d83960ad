"""The local engine's rarer parameters over HTTP, as clients of the openai SDK send them: chat and completions."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.cases.tiny_model import write_model
from tests.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT: Any = {"model": "tiny", "messages": [{"role": "user", "content": "abab"}], "max_tokens": 8}
TEXT: Any = {"model": "tiny", "prompt": "abab", "max_tokens": 8}
BEAMS = {"use_beam_search": True, "length_penalty": 0.5, "early_stopping": True}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[openai.AsyncOpenAI]:
    folder = tmp_path_factory.mktemp("tiny")
    template = folder / "template.jinja"
    template.write_text("{{ messages[0].content }}")
    row = f'{{source: "{write_model(folder / "model")}", chat_template: "{template}", speculative: {{tokens: 3}}}}'
    text = f"version: 1\nproviders:\n  local: {{threads: 1, kv_cache: {{memory: 1MiB}}, models: {{tiny: {row}}}}}\n"
    async with (
        serving(text) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=60) as opened,
    ):
        yield opened


async def test_beams_answer_chat_and_completions_alike_in_both_modes(client: openai.AsyncOpenAI) -> None:
    chat = await client.chat.completions.create(**CHAT, n=3, extra_body=BEAMS)
    text = await client.completions.create(**TEXT, n=3, extra_body=BEAMS)
    answers = [choice.message.content for choice in chat.choices]
    assert answers == [choice.text for choice in text.choices]
    assert [choice.index for choice in chat.choices] == [0, 1, 2]
    streamed = dict.fromkeys(range(3), "")
    async for chunk in await client.chat.completions.create(**CHAT, n=3, stream=True, extra_body=BEAMS):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert list(streamed.values()) == answers


async def test_the_best_of_several_samples_are_given(client: openai.AsyncOpenAI) -> None:
    on = {"ignore_eos": True}
    five = await client.completions.create(**TEXT, n=5, best_of=6, logprobs=0, seed=3, extra_body=on)
    sums = [sum(choice.logprobs.token_logprobs or []) for choice in five.choices if choice.logprobs is not None]
    assert len(sums) == 5
    assert sums == sorted(sums, reverse=True)
    chat = await client.chat.completions.create(**CHAT, seed=3, extra_body={"best_of": 6, **on})
    assert chat.choices[0].message.content == five.choices[0].text


@pytest.mark.parametrize("stream", [False, True])
async def test_context_logits_come_with_each_prompt(client: openai.AsyncOpenAI, stream: bool) -> None:
    body = {"return_context_logits": True}
    if stream:
        chunks = [c async for c in await client.completions.create(**TEXT, stream=True, extra_body=body)]
        told = [one.model_extra or {} for c in chunks for one in c.choices]
        (logits,) = [extra["context_logits"] for extra in told if "context_logits" in extra]
    else:
        text = await client.completions.create(**TEXT, extra_body=body)
        logits = (text.choices[0].model_extra or {})["context_logits"]
    assert [len(row) for row in logits] == [257] * 4
    chat = await client.chat.completions.create(**CHAT, extra_body=body)
    assert (chat.model_extra or {})["context_logits"] == logits


@pytest.mark.parametrize("stream", [False, True])
async def test_prompt_logprobs_are_those_of_echo(client: openai.AsyncOpenAI, stream: bool) -> None:
    echoed = await client.completions.create(**TEXT, echo=True, logprobs=3, extra_body={"prompt_logprobs": 1})
    assert echoed.choices[0].logprobs is not None
    expected = (echoed.choices[0].logprobs.token_logprobs or [])[:4]
    if stream:
        asked = await client.completions.create(**TEXT, stream=True, extra_body={"prompt_logprobs": 1})
        extras = [one.model_extra or {} async for chunk in asked for one in chunk.choices]
        (found,) = [extra["prompt_logprobs"] for extra in extras if "prompt_logprobs" in extra]
    else:
        chat = await client.chat.completions.create(**CHAT, extra_body={"prompt_logprobs": 1})
        found = (chat.model_extra or {})["prompt_logprobs"]
        assert found == (echoed.choices[0].model_extra or {})["prompt_logprobs"]
    assert found[0] is None
    assert [next(iter(entry.values()))["logprob"] for entry in found[1:]] == expected[1:]
    for entry in found[1:]:
        assert 1 <= len(entry) <= 2
        assert 1 in [one["rank"] for one in entry.values()]


async def test_sampling_parameters_are_taken_and_change_the_answer(client: openai.AsyncOpenAI) -> None:
    plain = await client.chat.completions.create(**CHAT, seed=5, temperature=1.5)
    content = plain.choices[0].message.content
    for extra in ({"typical_p": 0.1}, {"top_p": 0.01, "top_p_min": 0.5}, {"bad_words": list(content or "")}):
        shaped = await client.chat.completions.create(**CHAT, seed=5, temperature=1.5, extra_body=extra)
        assert shaped.choices[0].message.content != content


async def test_guesses_are_counted_in_the_usage(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(**CHAT, logit_bias={"97": 100}, temperature=0)
    assert answer.usage is not None
    details = answer.usage.completion_tokens_details
    assert details is not None
    assert details.accepted_prediction_tokens
    assert (answer.choices[0].model_extra or {})["avg_decoded_tokens_per_iter"] > 1


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"best_of": 3, "n": 4}, "best_of"),
        ({"use_beam_search": True, "length_penalty": 11}, "length_penalty"),
        ({"typical_p": 0}, "typical_p"),
        ({"typical_p": 2}, "typical_p"),
        ({"top_p_min": -1}, "top_p_min"),
        ({"bad_words": [""]}, "bad_words"),
        ({"chat_template": "x"}, "chat_template"),  # run.yaml does not allow it
    ],
)
async def test_numbers_out_of_range_are_a_400_by_name(
    client: openai.AsyncOpenAI, extra: dict[str, Any], param: str
) -> None:
    for create, body in ((client.chat.completions.create, CHAT), (client.completions.create, TEXT)):
        with pytest.raises(openai.BadRequestError) as caught:
            await create(**body, extra_body=extra)
        assert caught.value.param == param


async def test_a_model_whose_files_recommend_nothing_says_so_once_it_is_loaded(client: openai.AsyncOpenAI) -> None:
    await client.completions.create(**TEXT)
    told: dict[str, Any] = {}
    while "defaults" not in told:  # lists of this process are kept for a second
        told = ((await client.models.retrieve("tiny")).model_extra or {})["gateway"]
    assert told["defaults"] == {}
