"""The best of several answers, prompts' logits and the rarer parameters, over the real engine with a tiny model."""

import json
import math
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest, NotReady
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    PromptReported,
    ProviderReported,
    TextDelta,
    UsageReported,
)
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Request, Sampling
from adapters.canonical.result import Folder
from providers.base import Limits, ProviderSettings
from providers.local.provider import LocalProvider
from tests.cases.tiny_model import write_model

TEMPLATE = "{{ messages[0].content }}"


@asynccontextmanager
async def serving(folder: Path, **row: Any) -> AsyncIterator[LocalProvider]:
    template = folder / "template.jinja"
    template.write_text(TEMPLATE)
    model = {"source": str(write_model(folder / "model")), "chat_template": str(template), **row}
    provider = LocalProvider(
        ProviderSettings(
            name="local",
            type="local",
            limits=Limits(first_token_s=60),
            options={"models": {"m": model}, "kv_cache": {"memory": 1 << 20}, "threads": 1},
        )
    )
    await provider.start()
    try:
        yield provider
    finally:
        await provider.aclose()


def completion(*prompts: str, **fields: Any) -> Request:
    fields = {"max_tokens": 8, **fields}
    return Request(model="m", dialect="d", prompts=prompts, **fields)


async def events_of(provider: LocalProvider, request: Request) -> list[Event]:
    async with aclosing(provider.stream(request)) as batches:
        return [event async for batch in batches for event in batch]


async def texts(provider: LocalProvider, request: Request) -> list[str]:
    folder = Folder()
    events = await events_of(provider, request)
    folder.feed(events)
    finished = [event.choice for event in events if isinstance(event, ChoiceFinished)]
    assert sorted(finished) == list(range(request.num_choices))
    return [
        "".join(event.text for event in events if isinstance(event, TextDelta) and event.choice == choice)
        for choice in range(request.num_choices)
    ]


def usage(events: list[Event]) -> UsageReported:
    return [event for event in events if isinstance(event, UsageReported)][-1]


async def test_beams_of_every_prompt_come_under_their_numbers(tmp_path: Path) -> None:
    async with serving(tmp_path) as provider:
        beams = Sampling(use_beam_search=True)
        lone = [await texts(provider, completion(prompt, n=2, best_of=3, sampling=beams)) for prompt in ("ab", "xyz")]
        both = await texts(provider, completion("ab", "xyz", n=2, best_of=3, sampling=beams))
        assert both == lone[0] + lone[1]
        assert lone[0] != lone[1]
        greedy = await texts(provider, completion("ab", sampling=Sampling(temperature=0.0)))
        assert await texts(provider, completion("ab", sampling=beams)) == greedy


async def test_the_best_samples_have_the_better_logprobs(tmp_path: Path) -> None:
    async with serving(tmp_path) as provider:
        request = completion("ab", n=2, best_of=5, logprobs=0, sampling=Sampling(seed=1))
        events = await events_of(provider, request)
        means = []
        for choice in range(2):
            entries = [
                entry.logprob or 0.0
                for event in events
                if isinstance(event, TextDelta) and event.choice == choice
                for entry in event.logprobs
            ]
            assert len(entries) == 8
            means.append(math.fsum(entries) / 8)
        assert means == sorted(means, reverse=True)
        total = usage(events).usage
        assert (total.prompt_tokens, total.completion_tokens) == (2, 16)


async def test_a_chat_is_answered_by_beams_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as provider:
        chat = Request(
            model="m",
            dialect="d",
            messages=(Message(role=USER, parts=(Text(text="ab"),)),),
            max_tokens=8,
            n=2,
            sampling=Sampling(use_beam_search=True),
        )
        answers = await texts(provider, chat)
        assert answers == await texts(provider, completion("ab", n=2, sampling=Sampling(use_beam_search=True)))


async def test_length_penalty_and_early_stopping_reach_the_search(tmp_path: Path) -> None:
    async with serving(tmp_path) as provider:
        found = []
        for penalty in (-5.0, 5.0):
            sampling = Sampling(
                use_beam_search=True,
                length_penalty=penalty,
                early_stopping=False,
                stop_token_ids=tuple(range(0, 256, 3)),
            )
            found.append(await texts(provider, completion("ab", n=4, max_tokens=12, sampling=sampling)))
        assert len(found[0][0].encode()) < len(found[1][0].encode())


async def test_context_logits_are_one_row_a_token_of_the_prompt(tmp_path: Path) -> None:
    async with serving(tmp_path) as provider:
        for request in (
            completion("abc", return_context_logits=True),
            completion("abc", return_context_logits=True, sampling=Sampling(use_beam_search=True), n=2),
        ):
            events = await events_of(provider, request)
            (logits,) = [event.logits for event in events if isinstance(event, PromptReported)]
            assert logits is not None
            rows = orjson.loads(logits)
            assert [len(row) for row in rows] == [257, 257, 257]
        again = await events_of(provider, completion("abc", max_tokens=1, sampling=Sampling(temperature=0.0)))
        assert isinstance(again[1], TextDelta)
        assert again[1].text == bytes([max(range(256), key=rows[-1].__getitem__)]).decode(errors="replace")


async def test_bad_words_do_not_come_in_any_form(tmp_path: Path) -> None:
    async with serving(tmp_path) as provider:
        greedy = Sampling(temperature=0.0, ignore_eos=True)
        (free,) = await texts(provider, completion("ab", max_tokens=30, sampling=greedy))
        word = next(free[place : place + 2] for place in range(20) if free[place : place + 2].isascii())
        shaped = Sampling(temperature=0.0, ignore_eos=True, bad_words=(word,))
        (held,) = await texts(provider, completion("ab", max_tokens=30, sampling=shaped))
        assert word in free
        assert word not in held
        with pytest.raises(InvalidRequest, match="bad_words: item 1 is empty"):
            await texts(provider, completion("ab", sampling=Sampling(bad_words=("x", ""))))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"sampling": Sampling(typical_p=0.0)}, "typical_p"),
        ({"sampling": Sampling(top_p_min=1.5)}, "top_p_min"),
        ({"sampling": Sampling(use_beam_search=True, length_penalty=99.0)}, "length_penalty"),
        ({"n": 2, "best_of": 500}, "best_of"),
    ],
)
async def test_numbers_out_of_range_are_refused_in_the_clients_words(
    tmp_path: Path, fields: dict[str, Any], param: str
) -> None:
    async with serving(tmp_path) as provider:
        with pytest.raises(InvalidRequest) as caught:
            await texts(provider, completion("ab", **fields))
        assert caught.value.param == param


async def test_a_length_that_the_model_recommends_gives_way_to_the_request_and_the_window(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    (model / "generation_config.json").write_text(json.dumps({"max_new_tokens": 120, "eos_token_id": 256}))
    async with serving(tmp_path) as provider:
        for prompt, asked, expected in (("ab", None, 120), ("ab", 5, 5), ("a" * 100, None, 28)):
            request = completion(prompt, max_tokens=asked, sampling=Sampling(ignore_eos=True))
            events = await events_of(provider, request)
            assert usage(events).usage.completion_tokens == expected


@pytest.mark.parametrize("kind", ["ngram", "draft"])
async def test_speculation_changes_no_answer_and_its_guesses_are_counted(tmp_path: Path, kind: str) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "guessing").mkdir()
    draft = {"model": str(write_model(tmp_path / "draft"))} if kind == "draft" else {}
    request = completion(
        "abababababab", max_tokens=40, sampling=Sampling(seed=4, ignore_eos=True, logit_bias={97: 6.0})
    )
    async with serving(tmp_path / "plain") as provider:
        expected = await events_of(provider, request)
    async with serving(tmp_path / "guessing", speculative={"kind": kind, "tokens": 3, **draft}) as provider:
        events = await events_of(provider, request)
        stats = provider.engine_stats("m")
    assert stats is not None
    text, plain = (
        "".join(event.text for event in found if isinstance(event, TextDelta)) for found in (events, expected)
    )
    assert text == plain
    total = usage(events).usage
    assert total.completion_tokens == 40
    assert total.accepted_prediction_tokens == stats.accepted_draft_tokens > 0
    assert total.rejected_prediction_tokens == stats.rejected_draft_tokens
    assert usage(expected).usage.accepted_prediction_tokens is None


async def test_a_draft_model_of_other_tokens_is_refused_in_one_line(tmp_path: Path) -> None:
    draft = write_model(tmp_path / "draft")
    tokenizer = json.loads((draft / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = list(vocabulary)[:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (draft / "tokenizer.json").write_text(json.dumps(tokenizer))
    async with serving(tmp_path, speculative={"kind": "draft", "model": str(draft)}) as provider:
        with pytest.raises(NotReady, match="draft: cannot guess for model: its tokens are not the same"):
            await texts(provider, completion("ab"))


async def test_a_model_that_never_thinks_is_known_by_its_files(tmp_path: Path) -> None:
    async with serving(tmp_path) as provider:
        assert provider.capabilities("m").thinks  # nobody knows yet
        await texts(provider, completion("a", max_tokens=1))
        assert not provider.capabilities("m").thinks


@pytest.mark.parametrize(
    ("dialect", "told"), [("ollama.chat", True), ("ollama.generate", True), ("llamacpp", True), ("openai.chat", False)]
)
async def test_clients_of_ollama_and_llama_cpp_are_told_what_time_an_answer_took(
    dialect: str, told: bool, tmp_path: Path
) -> None:
    async with serving(tmp_path) as provider:
        request = Request(model="m", dialect=dialect, messages=(Message(role=USER, parts=(Text(text="hi"),)),))
        events = await events_of(provider, replace(request, max_tokens=4))
    reports = [event for event in events if isinstance(event, ProviderReported)]
    assert bool(reports) == told
    if told:
        (report,) = reports
        took = {name: int(raw) for name, raw in report.fields.items()}
        assert set(took) == {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"}
        assert min(took.values()) >= 1
        assert took["total_duration"] >= took["prompt_eval_duration"] + took["eval_duration"]
        assert events.index(report) < next(i for i, event in enumerate(events) if isinstance(event, ChoiceFinished))


@pytest.mark.parametrize(("dialect", "places"), [("anthropic.messages", [1, -1]), ("openai.chat", [-1])])
async def test_anthropics_clients_are_told_of_the_prompt_before_the_answer(
    dialect: str, places: list[int], tmp_path: Path
) -> None:
    async with serving(tmp_path) as provider:
        messages = (Message(role=USER, parts=(Text(text="hi"),)),)
        events = await events_of(provider, Request(model="m", dialect=dialect, messages=messages, max_tokens=4))
    usages = [event.usage for event in events if isinstance(event, UsageReported)]
    assert [events[place] for place in places] == [UsageReported(usage) for usage in usages]
    assert {usage.prompt_tokens for usage in usages} == {usages[-1].prompt_tokens}


async def test_a_seed_of_minus_one_is_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as provider:

        async def drawn(seed: int | None) -> tuple[str, ...]:
            request = completion("a", n=2, sampling=Sampling(seed=seed, temperature=2.0))
            return tuple(await texts(provider, request))

        assert await drawn(7) == await drawn(7)
        assert len({await drawn(-1) for _ in range(4)}) > 1
        assert len({await drawn(None) for _ in range(4)}) > 1
