"""Every field of Cohere's API, as its SDK (7.3, 2026-11) has it: where it comes from, or why it is not sent or read."""

import json
from typing import Any

import pytest

from adapters.canonical.embedding import CUT_TO_WINDOW, QUERY, EmbeddingRequest
from adapters.canonical.events import ChoiceFinished, Event
from adapters.canonical.rerank import RerankRequest
from adapters.cohere.embeddings import render_embeddings
from adapters.cohere.rerank import render_rerank
from adapters.cohere.upstream import CohereUpstream
from adapters.cohere.vocabulary import FINISH_REASONS
from providers.registry import build
from providers.remote.cohere import CohereProvider
from tests.adapters.cohere.exchange import chat
from tests.providers.remote.calls import settings

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
CHAT: dict[str, dict[str, Any]] = {
    "stream": {"stream": True},
    "model": {},
    "messages": {},
    "tools": {"tools": [TOOL]},
    "strict_tools": {"tools": [TOOL]},
    "response_format": {"response_format": SCHEMA},
    "max_tokens": {"max_completion_tokens": 7},
    "stop_sequences": {"stop": "x"},
    "temperature": {"temperature": 0.5},
    "seed": {"seed": 1},
    "frequency_penalty": {"frequency_penalty": 0.5},
    "presence_penalty": {"presence_penalty": 0.5},
    "k": {"top_k": 3},
    "p": {"top_p": 0.5},
    "tool_choice": {"tools": [TOOL], "tool_choice": "required"},
    "thinking": {"reasoning_effort": "high"},
    "priority": {"priority": 1},
}
"""Mapped: what a chat client says so that the field is sent."""
DEFAULTS: dict[str, Any] = {
    "documents": [{"data": {"text": "d"}}],
    "citation_options": {"mode": "FAST"},
    "safety_mode": "STRICT",
    "logprobs": True,  # whose tokens have no texts of their own
}
"""By the provider's `params:`, as no client has a word for them."""
SDK_CHAT = {
    "stream", "model", "messages", "tools", "strict_tools", "documents", "citation_options", "response_format",
    "safety_mode", "max_tokens", "stop_sequences", "temperature", "seed", "frequency_penalty", "presence_penalty", "k",
    "p", "logprobs", "tool_choice", "thinking", "priority",
}  # fmt: skip
SDK_EMBED = {
    "model", "input_type", "texts", "images", "inputs", "max_tokens", "output_dimension", "embedding_types", "truncate",
    "priority",
}  # fmt: skip
NO_TEXTS = {"images", "inputs", "priority"}
"""Of embeddings: what a client of the same dialect alone can say."""
SDK_RERANK = {"model", "query", "documents", "top_n", "max_tokens_per_doc", "relevant_spans", "priority"}
EVENTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "message-start": ({"delta": {"message": {"role": "assistant", "content": [], "tool_calls": []}}}, ["Started"]),
    "content-start": ({"delta": {"message": {"content": {"type": "text", "text": "a"}}}}, ["TextDelta"]),
    "content-delta": ({"delta": {"message": {"content": {"thinking": "a"}}}}, ["ReasoningDelta"]),
    "content-end": ({}, []),
    "tool-plan-delta": ({"delta": {"message": {"tool_plan": "a"}}}, ["TextDelta"]),
    "tool-call-start": (
        {"delta": {"message": {"tool_calls": {"id": "c", "function": {"name": "f", "arguments": ""}}}}},
        ["ToolCallStarted"],
    ),
    "tool-call-delta": (
        {"delta": {"message": {"tool_calls": {"function": {"arguments": "{}"}}}}},
        ["ToolArgumentsDelta"],
    ),
    "tool-call-end": ({}, ["ToolCallFinished"]),
    "citation-start": ({"delta": {"message": {"citations": {"start": 0, "end": 1, "text": "a"}}}}, ["AnnotationAdded"]),
    "citation-end": ({}, []),
    "debug": ({"prompt": "p"}, []),
    "message-end": (
        {"delta": {"finish_reason": "COMPLETE", "usage": {"tokens": {"input_tokens": 1, "output_tokens": 2}}}},
        ["ChoiceFinished", "UsageReported"],
    ),
}  # fmt: skip
FINISHES = {"COMPLETE", "STOP_SEQUENCE", "MAX_TOKENS", "TOOL_CALL", "ERROR", "TIMEOUT"}


def test_every_field_of_a_chat_is_decided() -> None:
    assert {*CHAT, *DEFAULTS} == SDK_CHAT


@pytest.mark.parametrize(("name", "fields"), CHAT.items())
def test_a_field_of_a_chat_comes_from_what_the_client_says(name: str, fields: dict[str, Any]) -> None:
    sent = chat(**fields).sent()
    assert name in sent
    assert (name in chat().sent()) == (not fields or name == "stream")


@pytest.mark.parametrize(("name", "value"), DEFAULTS.items())
def test_a_field_that_no_client_has_comes_from_the_configuration(name: str, value: Any) -> None:
    upstream = CohereUpstream("co", defaults={name: json.dumps(value).encode()})
    assert json.loads(upstream.render_request(chat().request))[name] == value
    assert name not in chat().sent()


def test_what_is_declared_is_what_is_mapped() -> None:
    provider = build(settings(type="cohere"))
    assert isinstance(provider, CohereProvider)
    declared = provider.capabilities("command-r").fields
    assert "logprobs" not in declared
    assert {"top_k", "seed", "reasoning.effort", "priority"} <= declared


def test_every_field_of_an_embedding_is_decided() -> None:
    fields: dict[str, Any] = {"dimensions": 2, "purpose": QUERY, "truncate_prompt_tokens": 5}
    asked = EmbeddingRequest(model="m", dialect="d", inputs=("a",), **fields)
    assert {*json.loads(render_embeddings(asked)), *NO_TEXTS} == SDK_EMBED
    cut = EmbeddingRequest(model="m", dialect="d", inputs=("a",), truncate_prompt_tokens=CUT_TO_WINDOW)
    assert "max_tokens" not in json.loads(render_embeddings(cut))


def test_every_field_of_ranks_is_mapped_or_goes_through_as_its_clients_say_it() -> None:
    extras = {"max_tokens_per_doc": b"5", "relevant_spans": b'{"later":1.50}', "priority": b"2"}
    asked = RerankRequest(model="m", dialect="d", query="q", documents=("a",), top_n=1, extras=extras)
    body = render_rerank(asked)
    assert set(json.loads(body)) == SDK_RERANK
    assert b'{"later":1.50}' in body


def read(*kinds: str) -> list[Event]:
    parser = chat(stream=True).upstream.stream_parser(chat(stream=True).request)
    frames = [{"type": kind, "index": 0, **EVENTS[kind][0]} for kind in kinds]
    data = b"".join([b"event: %b\ndata: %b\n\n" % (f["type"].encode(), json.dumps(f).encode()) for f in frames])
    return parser.feed(data)


@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_of_a_stream_is_read_or_passed_over(kind: str) -> None:
    before: dict[str, list[str]] = {
        "tool-call-delta": ["tool-call-start"],
        "tool-call-end": ["tool-call-start", "tool-call-delta"],
        "citation-start": ["content-start"],
    }
    first = ["message-start", *before.get(kind, [])] if kind != "message-start" else []
    told, expected = read(*first, kind)[len(read(*first)) :], EVENTS[kind][1]
    assert [type(event).__name__ for event in told] == expected


def test_every_finish_reason_has_its_meaning() -> None:
    assert FINISHES - {"ERROR", "TIMEOUT"} == set(FINISH_REASONS)
    assert [event.raw for event in read("message-start", "message-end") if isinstance(event, ChoiceFinished)] == [
        "COMPLETE"
    ]
