"""docs/parameters.md over HTTP: each parameter of each surface works on the local engine, or is refused by its name."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from adapters.openai.aliases import ALIASES
from adapters.openai.vocabulary import CHAT_FIELDS, COMPLETION_FIELDS, RESPONSES_FIELDS
from tests.cases.tiny_model import write_adapter, write_model
from tests.e2e.parameters import SAMPLES, SURFACES
from tests.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = Path(__file__).parents[2] / "docs" / "parameters.md"
WORKS, REFUSED, KEPT = "yes", "refused", "kept"
"""`kept`: it names something that the gateway keeps, and what is not kept is a 404."""
TEMPLATE = """{{ messages[0].content }}{% if tools %}<tool_call>{% endif %}{% if enable_thinking %}<think>{% endif %}\
{{ reasoning_effort }}{% if false %}</think>{% endif %}"""


def documented() -> dict[str, dict[str, str]]:
    """What the page says of each parameter, by surface."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 2 + len(SURFACES):
            found[cells[0].strip("`")] = dict(zip(SURFACES, cells[1:], strict=False))
    return found


def write_tokenizer(folder: Path) -> None:
    """The tiny model's bytes, but for three that give their ids to marks for filling in."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[:253]
    tokenizer = tokenizers.Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<end>"])
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("tiny")
    write_tokenizer(write_model(folder / "model"))
    (folder / "template.jinja").write_text(TEMPLATE)
    adapter = write_adapter(folder / "lora", seed=1)
    files = f'source: "{folder / "model"}", chat_template: "{folder / "template.jinja"}"'
    row = f'{{{files}, adapters: {{lora: "{adapter}"}}}}'
    text = (
        "version: 1\nserver: {request_templates: true}\n"
        f"providers:\n  local: {{threads: 1, kv_cache: {{memory: 1MiB}}, models: {{tiny: {row}}}}}\n"
    )
    async with serving(text) as url:
        yield url


async def asked(url: str, surface: str, fields: dict[str, Any]) -> tuple[int, Any]:
    """The status, and the body as JSON, or as text where it was streamed."""
    path, body = SURFACES[surface]
    async with (
        aiohttp.ClientSession() as session,
        session.post(url + path, json={"model": "tiny", **body, **fields}) as answer,
    ):
        text = await answer.text()
        return answer.status, text if answer.content_type == "text/event-stream" else json.loads(text)


async def test_the_page_names_every_parameter_that_is_read() -> None:
    tables = (CHAT_FIELDS, COMPLETION_FIELDS, RESPONSES_FIELDS)
    assert documented().keys() == SAMPLES.keys()
    assert {wire for table in tables for wire in table.by_wire} | ALIASES.keys() <= SAMPLES.keys()


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_parameter_does_what_the_page_says(url: str, surface: str, name: str) -> None:
    said = documented()[name][surface]
    status, body = await asked(url, surface, SAMPLES[name].fields(name, surface))
    if said == WORKS:
        assert status == 200, body
        return
    assert said in (REFUSED, KEPT)
    assert status == (400 if said == REFUSED else 404), body
    assert body["error"]["param"] == name, body


async def chat(url: str, **fields: Any) -> Any:
    status, body = await asked(url, "chat", fields)
    assert status == 200, body
    return body


async def completion(url: str, **fields: Any) -> Any:
    status, body = await asked(url, "completions", fields)
    assert status == 200, body
    return body


async def test_a_prompt_is_cut_to_its_last_tokens(url: str) -> None:
    for prompt in ("xyab", "ab"):
        body = await completion(url, prompt=prompt, truncate_prompt_tokens=2, echo=True, return_token_ids=True, seed=1)
        assert body["usage"]["prompt_tokens"] == 2
        assert body["choices"][0]["text"].startswith("ab")


async def test_an_answer_may_be_token_ids_alone(url: str) -> None:
    told = {"seed": 1, "ignore_eos": True, "return_token_ids": True, "logprobs": True}
    with_text, without = await chat(url, **told), await chat(url, **told, detokenize=False)
    assert without["choices"][0]["token_ids"] == with_text["choices"][0]["token_ids"]
    assert not without["choices"][0]["message"]["content"]
    assert without["choices"][0]["logprobs"] == with_text["choices"][0]["logprobs"]
    status, body = await asked(url, "chat", {"detokenize": False, "stop": "x"})
    assert (status, body["error"]["param"]) == (400, "stop")


async def test_ids_stand_in_place_of_tokens_texts(url: str) -> None:
    plain = await completion(url, seed=1, logprobs=1, echo=True, prompt_logprobs=1)
    shown = await completion(url, seed=1, logprobs=1, echo=True, prompt_logprobs=1, return_tokens_as_token_ids=True)
    before, behind = plain["choices"][0]["logprobs"], shown["choices"][0]["logprobs"]
    assert all(token.startswith("token_id:") for token in behind["tokens"])
    assert (before["token_logprobs"], before["text_offset"]) == (behind["token_logprobs"], behind["text_offset"])


async def test_each_token_of_a_prompt_is_told_with_its_rank(url: str) -> None:
    few, many = [(await completion(url, prompt_logprobs=count))["choices"][0]["prompt_logprobs"] for count in (0, 20)]
    ranked = 0
    for alone, beside_others in zip(few[1:], many[1:], strict=True):
        ((token, told),) = alone.items()
        likelier = [other for other in beside_others.values() if other["logprob"] > told["logprob"]]
        assert beside_others[token] == told
        assert told["rank"] == 1 + len(likelier) or (len(likelier) == 20 < told["rank"])
        ranked += len(likelier) == 20
    assert ranked, "a token that is none of the likeliest"


async def test_listed_tokens_are_told_behind_the_likeliest(url: str) -> None:
    body = await chat(url, seed=1, logprobs=True, top_logprobs=1, logprob_token_ids=[70, 71])
    wanted = await chat(url, seed=1, logprobs=True, top_logprobs=20)
    for entry, all_of in zip(*(found["choices"][0]["logprobs"]["content"] for found in (body, wanted)), strict=True):
        assert 2 <= len(entry["top_logprobs"]) <= 3
        assert entry["top_logprobs"][0] == all_of["top_logprobs"][0]
        known = {str(top["bytes"]): top["logprob"] for top in all_of["top_logprobs"]}
        assert all(known.get(str(top["bytes"]), top["logprob"]) == top["logprob"] for top in entry["top_logprobs"])


async def test_a_chat_may_bring_its_prompt_as_token_ids(url: str) -> None:
    rendered = await chat(url, seed=1, return_token_ids=True)
    ids = rendered["prompt_token_ids"]
    given = await chat(url, seed=1, return_token_ids=True, messages=[{"role": "user", "content": "x"}], input_ids=ids)
    assert given["choices"] == rendered["choices"]


async def test_a_middle_is_asked_for_with_the_vocabularys_marks(url: str) -> None:
    filled = await completion(url, prompt="ab", suffix="cd", return_token_ids=True)
    prefix, suffix, middle = 253, 254, 255
    ids = filled["choices"][0]["prompt_token_ids"]
    assert (ids[0], ids[3], ids[6], len(ids)) == (prefix, suffix, middle, 7)
    code = "the <|fim_suffix|> mark"
    ids = (await completion(url, prompt=code, suffix=code, return_token_ids=True))["choices"][0]["prompt_token_ids"]
    assert [number for number in ids if number >= prefix] == [prefix, suffix, middle]
    assert len(ids) == 3 + 2 * len(code)
    status, body = await asked(url, "completions", {"suffix": "cd", "echo": True})
    assert (status, body["error"]["param"]) == (400, "suffix")


async def test_an_editor_of_llama_cpp_gets_the_same_middle_and_what_time_it_took(url: str) -> None:
    filled = await completion(url, prompt="abab", suffix="cd", max_tokens=4, seed=1, return_token_ids=True)
    sent = {
        "input_prefix": "ab",
        "prompt": "ab",
        "input_suffix": "cd",
        "n_predict": 4,
        "return_tokens": True,
        "seed": 1,
    }
    async with aiohttp.ClientSession() as session, session.post(f"{url}/infill", json=sent) as answer:
        body = await answer.json()
    choice = filled["choices"][0]
    assert (body["content"], body["tokens"]) == (choice["text"], choice["token_ids"])
    assert body["timings"]["predicted_per_second"] > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_echoes_the_assistants_own_beginning(url: str, stream: bool) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Once"}]
    body = await chat(url, messages=messages, echo=True, seed=1, stream=stream)
    if stream:
        chunks = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
        text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    else:
        text = body["choices"][0]["message"]["content"]
    assert text.startswith("Once")
    asks = await chat(url, messages=messages[:1], echo=True, seed=1)
    assert not asks["choices"][0]["message"]["content"].startswith("x")


async def test_a_request_may_bring_its_own_template(url: str) -> None:
    body = await chat(url, chat_template="{{ 'zz' }}{{ messages[0].content }}", return_token_ids=True)
    plain = await chat(url, return_token_ids=True)
    assert len(body["prompt_token_ids"]) == len(plain["prompt_token_ids"]) + 2
    for template in ("{% if %}", "{{ raise_exception('SECRET') }}", "x" * 70_000):
        status, refused = await asked(url, "chat", {"chat_template": template})
        assert status == 400
        assert "SECRET" not in json.dumps(refused)


async def test_a_budget_ends_the_thinking_over_http(url: str) -> None:
    template = "{{ messages[0].content }}<think>"
    body = await chat(url, chat_template=template, thinking_token_budget=3, ignore_eos=True, max_tokens=20, seed=1)
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 6
    assert body["choices"][0]["message"]["content"]
    left = await chat(
        url, chat_template=template, thinking_budget=3, ignore_eos=True, max_tokens=20, reasoning_format="none"
    )
    assert "</think>" in left["choices"][0]["message"]["content"]


async def test_a_budget_and_a_form_of_the_answer_hold_together(url: str) -> None:
    fields = SAMPLES["response_format"].fields("response_format", "chat")
    for budget in (0, 3):
        asks = {"chat_template": "{{ messages[0].content }}<think>", "thinking_token_budget": budget, "max_tokens": 60}
        body = await chat(url, **fields, **asks, seed=2)
        assert set(json.loads(body["choices"][0]["message"]["content"])) == {"a"}
        assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] <= budget + 3


async def test_one_field_under_two_names_is_refused(url: str) -> None:
    status, body = await asked(url, "chat", {"repeat_penalty": 1.1, "repetition_penalty": 1.1})
    assert (status, body["error"]["param"]) == (400, "repeat_penalty")
    bad = {"thinking": "yes", "reasoning_format": "x", "cache_prompt": False, "lora_request": {}}
    for name, value in bad.items():
        status, body = await asked(url, "chat", {name: value})
        assert (status, body["error"]["param"]) == (400, name)


async def test_a_prompt_is_cut_to_what_leaves_room_for_the_answer(url: str) -> None:
    texts: dict[str, dict[str, Any]] = {
        "chat": {"messages": [{"role": "user", "content": "ab" * 500}]},
        "completions": {"prompt": "ab" * 500},
        "responses": {"input": "ab" * 500},
    }
    for surface, text in texts.items():
        limit = "max_output_tokens" if surface == "responses" else "max_tokens"
        room = 20 if surface != "responses" else 16
        status, body = await asked(
            url, surface, {**text, limit: room, "truncate_prompt_tokens": -1, "ignore_eos": True}
        )
        assert status == 200, body
        usage = body["usage"]
        assert usage["total_tokens"] == 128, "the whole window of the tiny model"
        status, body = await asked(url, surface, {"truncate_prompt_tokens": 0})
        assert (status, body["error"]["param"]) == (400, "truncate_prompt_tokens")


@pytest.mark.parametrize(
    ("rules", "param"),
    [
        ({"allowed_token_ids": [70, 71], "guided_regex": "[0-9]+"}, "allowed_token_ids"),
        ({"allowed_token_ids": [65], "guided_regex": "AAAB"}, "allowed_token_ids"),
        ({"bad_words": ["1", "2"], "guided_choice": ["1", "2"]}, "bad_words"),
    ],
    ids=["from_the_first_token", "after_some_tokens", "bad_words"],
)
async def test_rules_that_leave_no_token_are_the_requests_fault(url: str, rules: dict[str, Any], param: str) -> None:
    status, body = await asked(url, "completions", {**rules, "max_tokens": 8})
    assert status == 400, body
    assert (body["error"]["type"], body["error"]["param"]) == ("invalid_request_error", param)
    _, streamed = await asked(url, "completions", {**rules, "max_tokens": 8, "stream": True})
    raw = json.dumps(streamed)
    assert "invalid_request_error" in raw
    assert 'finish_reason": "' not in raw


async def test_an_adapter_is_asked_for_by_an_object_and_one_that_is_not_loaded_is_refused(url: str) -> None:
    fields = {"seed": 1, "temperature": 0, "ignore_eos": True, "max_tokens": 12}
    plain = await chat(url, **fields)
    spelled = [{"lora_name": "lora", "lora_int_id": 1, "lora_path": "/nowhere"}, {"name": "lora", "int_id": 0}]
    answers = [await chat(url, **fields, lora_request=each) for each in spelled]
    texts = [body["choices"][0]["message"]["content"] for body in (plain, *answers)]
    assert texts[1] == texts[2] != texts[0]
    status, body = await asked(url, "chat", {**fields, "lora_request": {"lora_name": "other", "lora_path": "/x"}})
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert "no adapter of that name is loaded" in body["error"]["message"]
    status, body = await asked(url, "chat", {"lora_request": {"lora_path": "/x"}})
    assert (status, body["error"]["param"]) == (400, "lora_request")
    assert "none is loaded from a path" in body["error"]["message"]
