"""The rows are consistent with what the router and the dialect know, and with how their vendors differ."""

import json
import re
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.events import ToolCallStarted
from adapters.canonical.messages import (
    ASSISTANT,
    DEVELOPER,
    SYSTEM,
    TOOL,
    USER,
    CacheHint,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from adapters.canonical.request import EXPRESSIBLE_FIELDS, ReasoningOptions, Request, Sampling, TemplateOptions, Tool
from adapters.canonical.rerank import RerankRequest
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.completions.upstream import CompletionsUpstream
from providers.abilities import EXTRAS
from providers.remote.vendors import VENDORS, Vendor

rows = pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS.keys())

CHAT_VALUES: dict[str, Any] = {
    "temperature": 0.25,
    "top_p": 0.25,
    "top_k": 7,
    "min_p": 0.25,
    "top_p_min": 0.25,
    "typical_p": 0.25,
    "repetition_penalty": 1.5,
    "presence_penalty": 0.25,
    "frequency_penalty": 0.25,
    "seed": 7,
    "stop_token_ids": (1,),
    "include_stop": True,
    "ignore_eos": True,
    "min_tokens": 7,
    "bad_words": ("x",),
    "allowed_token_ids": (1,),
    "use_beam_search": True,
    "length_penalty": 0.25,
    "early_stopping": True,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "stop": ("x",),
    "logit_bias": {1: 1.0},
}


def rendered(vendor: Vendor, *, prompts: bool = False, **changes: Any) -> dict[str, Any]:
    """The body that goes out for a request with these fields."""
    messages = (Message(role=DEVELOPER, parts=(Text(text="hi"),)),)
    base = (
        Request(model="m", dialect="d", prompts=("hi",))
        if prompts
        else Request(model="m", dialect="d", messages=messages)
    )
    upstream = CompletionsUpstream(vendor.quirks) if prompts else ChatUpstream(vendor.quirks)
    body: dict[str, Any] = json.loads(upstream.render_request(replace(base, **changes)))
    return body


@rows
def test_a_row_names_only_fields_that_the_router_knows(vendor: Vendor) -> None:
    assert vendor.fields <= EXPRESSIBLE_FIELDS
    assert "messages" in vendor.fields or vendor.abilities
    assert vendor.quirks.names.keys() <= vendor.fields


@rows
def test_a_row_names_only_abilities_and_fields_that_there_are(vendor: Vendor) -> None:
    assert vendor.abilities <= {"embeddings", "rerank", "tokenize", "chat_token_count"}
    optional = {"dimensions", "truncate_prompt_tokens", "user", EXTRAS}
    assert vendor.embedding_fields <= optional <= {EXTRAS, *EmbeddingRequest.__struct_fields__}
    ranking = {"top_n", "truncate_prompt_tokens", "user", EXTRAS}
    assert vendor.rerank_fields <= ranking <= {EXTRAS, *RerankRequest.__struct_fields__}
    starts = ("/audio", "/images", "/moderations", "/files", "/batches")
    assert all(path.startswith(starts) for path in vendor.forwarded_paths)


@rows
def test_every_sampling_field_of_a_row_reaches_the_body(vendor: Vendor) -> None:
    plain = rendered(vendor)
    for name in sorted(vendor.fields & CHAT_VALUES.keys()):
        assert rendered(vendor, sampling=Sampling(**{name: CHAT_VALUES[name]})) != plain, name


@rows
def test_every_other_field_of_a_row_reaches_a_body(vendor: Vendor) -> None:
    values: dict[str, Any] = {
        "max_tokens": 7,
        "n": 2,
        "best_of": 2,
        "logprobs": 1,
        "prompt_logprobs": 1,
        "parallel_tool_calls": True,
        "user": "u",
        "verbosity": "low",
        "store": True,
        "service_tier": "auto",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "prompt_cache_options": b"{}",
        "metadata": b"{}",
        "modalities": ("text",),
        "audio": b"{}",
        "prediction": b"{}",
        "web_search_options": b"{}",
        "moderation": b"{}",
        "priority": 1,
        "cache_salt": "s",
        "return_token_ids": True,
        "truncate_prompt_tokens": 7,
        "reasoning.effort": ReasoningOptions(effort="low"),
        "reasoning.include": ReasoningOptions(include=True),
        "reasoning.budget_tokens": ReasoningOptions(budget_tokens=7),
        "template.kwargs": TemplateOptions(kwargs=b"{}"),
        "template.chat_template": TemplateOptions(chat_template="x"),
        "template.continue_final_message": TemplateOptions(continue_final_message=True),
        "template.add_generation_prompt": TemplateOptions(add_generation_prompt=True),
    }
    for name in sorted(vendor.fields & values.keys()):
        change = {name.partition(".")[0]: values[name]}
        chat, completions = rendered(vendor, **change), rendered(vendor, prompts=True, **change)
        assert chat != rendered(vendor) or completions != rendered(vendor, prompts=True), name


@pytest.mark.parametrize(
    ("vendor", "sampling", "wire"),
    [
        ("llama.cpp", Sampling(repetition_penalty=1.5), {"repeat_penalty": 1.5}),
        ("lm-studio", Sampling(repetition_penalty=1.5), {"repeat_penalty": 1.5}),
        ("sglang", Sampling(include_stop=True), {"no_stop_trim": True}),
        ("vllm", Sampling(include_stop=True), {"include_stop_str_in_output": True}),
        ("mistral", Sampling(seed=7), {"random_seed": 7}),
    ],
)
def test_a_vendors_own_spelling_is_used_and_no_other(vendor: str, sampling: Sampling, wire: dict[str, Any]) -> None:
    plain = rendered(VENDORS[vendor])
    body = rendered(VENDORS[vendor], sampling=sampling)
    assert {name: value for name, value in body.items() if name not in plain} == wire


@pytest.mark.parametrize(("vendor", "role"), [("deepseek", "system"), ("mistral", "system"), ("openai", "developer")])
def test_a_vendor_that_knows_no_developer_gets_a_system_message(vendor: str, role: str) -> None:
    assert rendered(VENDORS[vendor])["messages"][0]["role"] == role


def test_a_vendor_that_refuses_stream_options_gets_none() -> None:
    assert "stream_options" not in rendered(VENDORS["mistral"], stream=True)
    assert "stream_options" in rendered(VENDORS["openai"], stream=True)


NAMED = tuple(name for name, vendor in VENDORS.items() if vendor.quirks.tool_names is not None)


@pytest.mark.parametrize("name", NAMED)
def test_names_of_tools_that_a_vendor_forbids_are_mapped_and_come_back(name: str) -> None:
    quirks = VENDORS[name].quirks
    call = ToolCall(id="an id:1", name="get.it", arguments="{}")
    messages = (
        Message(role=ASSISTANT, parts=(call,)),
        Message(role=TOOL, parts=(ToolResult(call_id="an id:1", parts=(Text(text="ok"),)),)),
    )
    request = Request(model="m", dialect="d", messages=messages, tools=(Tool(kind="function", name="get.it"),))
    body = json.loads(ChatUpstream(quirks).render_request(request))
    sent = body["tools"][0]["function"]["name"]
    made = body["messages"][0]["tool_calls"][0]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", sent)
    assert made["function"]["name"] == sent
    assert made["id"] == body["messages"][1]["tool_call_id"]
    answer = {"tool_calls": [{"id": "c", "type": "function", "function": {"name": sent, "arguments": "{}"}}]}
    whole = {"choices": [{"index": 0, "message": answer, "finish_reason": "tool_calls"}]}
    events = ChatUpstream(quirks).parse_body(request, json.dumps(whole).encode())
    assert [event.name for event in events if isinstance(event, ToolCallStarted)] == ["get.it"]


def test_mistral_gets_ids_of_nine_letters_and_digits_and_a_prefix() -> None:
    quirks = VENDORS["mistral"].quirks
    ids = ("call_0123456789", "abcDEF123")
    calls = tuple([ToolCall(id=one, name="f", arguments="{}") for one in ids])
    message = Message(role=ASSISTANT, parts=calls)
    request = Request(
        model="m", dialect="d", messages=(message,), template=TemplateOptions(continue_final_message=True)
    )
    body = json.loads(ChatUpstream(quirks).render_request(request))
    sent = [call["id"] for call in body["messages"][0]["tool_calls"]]
    assert [bool(re.fullmatch(r"[a-zA-Z0-9]{9}", one)) for one in sent] == [True, True]
    assert sent[1] == "abcDEF123"
    assert body["messages"][0]["prefix"] is True
    assert "continue_final_message" not in body


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("openai", "prompt_cache_breakpoint", {"mode": "explicit"}),
        ("openrouter", "cache_control", {"type": "ephemeral", "ttl": "1h"}),
    ],
)
def test_cache_hints_go_where_a_vendor_takes_them_four_at_most(name: str, field: str, value: Any) -> None:
    def said(role: str) -> Message:
        return Message(role=role, parts=(Text(text="x", cache=CacheHint(ttl="1h")),))

    messages = (said(SYSTEM), *[said(USER) for _ in range(6)])
    request = Request(model="m", dialect="anthropic.messages", messages=messages)
    body = json.loads(ChatUpstream(VENDORS[name].quirks).render_request(request))
    found = [
        message["content"][0].get(field) if isinstance(message["content"], list) else None
        for message in body["messages"]
    ]
    assert found == [value, None, None, None, value, value, value]
    plain = json.loads(ChatUpstream(VENDORS["vllm"].quirks).render_request(request))
    assert [message["content"] for message in plain["messages"]] == ["x"] * 7


@pytest.mark.parametrize("name", ["deepseek", "moonshot"])
def test_a_turn_without_a_thought_says_a_blank_where_thoughts_are_due(name: str) -> None:
    def said(role: str, *parts: Part) -> Message:
        return Message(role=role, parts=parts)

    thought, text = Reasoning(text="hm"), Text(text="x")
    messages = (said(USER, text), said(ASSISTANT, thought, text), said(ASSISTANT, text), said(ASSISTANT, text))
    request = Request(model="m", dialect="openai.chat", messages=messages)
    body = json.loads(ChatUpstream(VENDORS[name].quirks).render_request(request))
    assert [message.get("reasoning_content") for message in body["messages"]] == [None, "hm", " ", None]
