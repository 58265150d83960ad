"""Law 8: every request field is mapped, forwarded or refused by name.

The names come from the openai SDK's own types, so that a new field fails here until it is decided.
"""

import json
from typing import Any, get_type_hints

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.openai.vocabulary import CHAT_FIELDS, COMPLETION_FIELDS
from gateway.routing.requirements import fit
from providers.base import Capabilities
from tests.adapters.openai.exchange import Exchange, chat, completion

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}
CUSTOM = {"type": "custom", "custom": {"name": "c", "description": "d", "format": {"type": "text"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": True}}
LOCATION = {"type": "approximate", "approximate": {"city": "Oslo"}}

SHARED: dict[str, Any] = {
    "frequency_penalty": -2.0,
    "logit_bias": {"50256": -100, "7": 0.5},
    "n": 2,
    "presence_penalty": 2.0,
    "seed": -(2**63),
    "stop": ["a", "b"],
    "temperature": 0.5,
    "top_p": 0.25,
    "user": "u-1",
}
CHAT_VALUES: dict[str, Any] = SHARED | {
    "audio": {"voice": {"id": "v"}, "format": "wav"},
    "logprobs": True,
    "max_tokens": 5,
    "messages": [{"role": "developer", "content": "x", "name": "n"}, {"role": "user", "content": "y"}],
    "metadata": {"k": "v"},
    "modalities": ["text", "audio"],
    "model": "some/model",
    "moderation": {"model": "omni", "policy": {"input": {"mode": "block"}}},
    "parallel_tool_calls": False,
    "prediction": {"type": "content", "content": [{"type": "text", "text": "t"}]},
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
    "prompt_cache_retention": "24h",
    "reasoning_effort": "xhigh",
    "response_format": SCHEMA,
    "safety_identifier": "s",
    "service_tier": "flex",
    "store": True,
    "stream": True,
    "tools": [TOOL, CUSTOM],
    "verbosity": "low",
    "web_search_options": {"search_context_size": "low", "user_location": LOCATION},
}
COMPLETION_VALUES: dict[str, Any] = SHARED | {
    "best_of": 3,
    "echo": True,
    "logprobs": 5,
    "max_tokens": 0,
    "model": "some/model",
    "prompt": ["a", "b"],
    "stream": True,
    "suffix": "end",
}
ENGINE_VALUES: dict[str, Any] = {
    "top_k": -1,
    "min_p": 0.1,
    "top_p_min": 0.1,
    "typical_p": 0.9,
    "repetition_penalty": 1.1,
    "stop_token_ids": [1, 2],
    "include_stop_str_in_output": True,
    "ignore_eos": True,
    "min_tokens": 3,
    "bad_words": ["x"],
    "allowed_token_ids": [4],
    "use_beam_search": False,
    "length_penalty": 0.5,
    "early_stopping": True,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "echo": True,
    "best_of": 2,
    "truncate_prompt_tokens": 10,
    "prompt_logprobs": 2,
    "logprob_token_ids": [3, 4],
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
    "return_context_logits": True,
    "detokenize": False,
    "priority": -1,
    "cache_salt": "salt",
    "add_special_tokens": False,
}
CHAT_ENGINE_VALUES: dict[str, Any] = ENGINE_VALUES | {
    "prompt_token_ids": [1, 2],
    "include_reasoning": False,
    "separate_reasoning": False,
    "thinking_token_budget": 100,
    "chat_template": "{{ messages }}",
    "chat_template_kwargs": {"thinking": True},
    "add_generation_prompt": False,
    "continue_final_message": True,
    "documents": [{"text": "d"}],
}
REFUSED = ("functions", "function_call")
READ_BY_THE_GATEWAY = ("request_id", "session_id")
APART = ("max_completion_tokens", "stream_options", "tool_choice", "top_logprobs")
"""Fields whose value depends on another's; each has tests of its own below."""


def names_in(params: Any) -> set[str]:
    return set(get_type_hints(params.CompletionCreateParamsStreaming)) | set(
        get_type_hints(params.CompletionCreateParamsNonStreaming)
    )


def test_every_chat_field_of_the_sdk_is_decided() -> None:
    assert names_in(chat_create_params) == set(CHAT_VALUES) | set(REFUSED) | set(APART)


def test_every_legacy_field_of_the_sdk_is_decided() -> None:
    assert names_in(completion_create_params) == set(COMPLETION_VALUES) | {"stream_options"}


def test_every_engine_field_is_decided() -> None:
    assert set(CHAT_FIELDS.by_wire) - set(CHAT_VALUES) == set(CHAT_ENGINE_VALUES) | set(READ_BY_THE_GATEWAY)
    legacy = set(COMPLETION_FIELDS.by_wire) - set(COMPLETION_VALUES)
    assert legacy == set(ENGINE_VALUES) - set(COMPLETION_VALUES) | set(READ_BY_THE_GATEWAY)


def same(name: str, value: Any, exchange: Exchange) -> None:
    sent = exchange.sent()
    assert json.dumps(sent.pop(name)) == json.dumps(value)
    assert set(sent) <= {"model", "messages", "prompt", "stream", "stream_options"}


@pytest.mark.parametrize(("name", "value"), (CHAT_VALUES | CHAT_ENGINE_VALUES).items())
def test_a_chat_field_reaches_an_upstream_of_the_dialect_as_it_came(name: str, value: Any) -> None:
    same(name, value, chat(**{name: value}))


@pytest.mark.parametrize(("name", "value"), (ENGINE_VALUES | COMPLETION_VALUES).items())
def test_a_legacy_field_reaches_an_upstream_of_the_dialect_as_it_came(name: str, value: Any) -> None:
    same(name, value, completion(**{name: value}))


@pytest.mark.parametrize("name", REFUSED)
def test_a_legacy_function_field_is_refused_by_name_with_the_way_out(name: str) -> None:
    with pytest.raises(UnsupportedParameter, match=f"{name}: .* use tool") as caught:
        chat(**{name: [{"name": "f"}]})
    assert caught.value.param == name
    assert name not in chat(**{name: None}).sent()


@pytest.mark.parametrize("name", READ_BY_THE_GATEWAY)
def test_ids_are_read_by_the_gateway_and_go_into_no_body(name: str) -> None:
    for make in (chat, completion):
        exchange = make(**{name: "r-1"})
        assert getattr(exchange.request, name) == "r-1"
        assert exchange.sent() == make().sent()


WRONG: dict[str, Any] = {"stop": [1], "logit_bias": {"1": "x"}, "tools": {}, "messages": "hi", "prompt": {"a": 1}}


def wrong_values(name: str, value: Any) -> list[Any]:
    """Values of every other JSON type."""
    found: list[Any] = [WRONG[name]] if name in WRONG else []
    kinds: dict[type, Any] = {bool: True, int: 7, float: 1.5, str: "x", list: [[]], dict: {"x": [[]]}}
    takes_floats = isinstance(value, float)
    takes_text = name in ("stop", "prompt", "tool_choice")
    takes_lists = name in ("prompt",)
    for kind, other in kinds.items():
        if kind is type(value) or (kind is int and takes_floats) or (kind is str and takes_text):
            continue
        if kind is list and takes_lists:
            continue
        found.append(other)
    return found


@pytest.mark.parametrize(("name", "value"), (CHAT_VALUES | CHAT_ENGINE_VALUES).items())
def test_a_chat_field_of_the_wrong_type_is_refused_by_name(name: str, value: Any) -> None:
    for wrong in wrong_values(name, value):
        with pytest.raises(InvalidRequest) as caught:
            chat(**{name: wrong})
        assert (caught.value.param or "").startswith(name), wrong
        assert caught.value.message.startswith(name)


@pytest.mark.parametrize(("name", "value"), (ENGINE_VALUES | COMPLETION_VALUES).items())
def test_a_legacy_field_of_the_wrong_type_is_refused_by_name(name: str, value: Any) -> None:
    for wrong in wrong_values(name, value):
        with pytest.raises(InvalidRequest) as caught:
            completion(**{name: wrong})
        assert (caught.value.param or "").startswith(name), wrong


@pytest.mark.parametrize("name", sorted({*CHAT_VALUES, *CHAT_ENGINE_VALUES, *APART} - {"model", "messages"}))
def test_a_null_is_the_same_as_no_field(name: str) -> None:
    assert chat(**{name: None}).request == chat().request


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("n", 129),
        ("temperature", 2.1),
        ("temperature", -0.1),
        ("top_p", 1.01),
        ("presence_penalty", 2.01),
        ("frequency_penalty", -2.01),
        ("seed", 2**63),
        ("seed", -(2**63) - 1),
        ("seed", 2**64),
        ("seed", 1.5),
        ("seed", True),
        ("n", True),
        ("top_k", -2),
        ("top_k", 2**31),
        ("top_k", 1.5),
        ("max_tokens", 0),
        ("max_tokens", -2),
        ("max_tokens", 2**31),
        ("max_completion_tokens", 0),
        ("min_tokens", -1),
        ("stop_token_ids", [2**31]),
        ("stop_token_ids", [-1]),
        ("repetition_penalty", 0),
        ("logit_bias", {"1": 101}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"x": 1}),
        ("prompt_logprobs", 21),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", ["a"] * 65),
        ("tools", []),
        ("messages", []),
        ("model", ""),
        ("user", "u" * 513),
        ("top_logprobs", 1),
        ("top_logprobs", 0),
        ("stream_options", {"include_usage": True}),
        ("tool_choice", "required"),
        ("tool_choice", "whatever"),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}),
        ("tool_choice", {"type": "function"}),
        ("tool_choice", {"type": "web_search"}),
        ("response_format", {"type": "json_schema"}),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": {}}}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "n", "schema": []}}),
        ("response_format", {}),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(**{name: value})
    assert caught.value.status == 400
    assert (caught.value.param or "").startswith(name)


@pytest.mark.parametrize("name", ["seed", "temperature", "max_tokens", "n", "top_k"])
@pytest.mark.parametrize("number", ["1e400", "9" * 5000, "-1e400", "NaN", "Infinity", "-Infinity"])
def test_a_number_that_no_machine_holds_is_refused_by_name(name: str, number: str) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"%b":%b}' % (name.encode(), number.encode())
    with pytest.raises(InvalidRequest) as caught:
        Exchange(body)
    assert caught.value.param == name


def test_the_newer_token_limit_wins_and_one_alone_is_sent() -> None:
    sent = chat(max_tokens=40, max_completion_tokens=30).sent()
    assert sent["max_tokens"] == 30
    assert "max_completion_tokens" not in sent


@pytest.mark.parametrize("top", [21, -1])
def test_alternatives_are_0_to_20(top: int) -> None:
    with pytest.raises(InvalidRequest, match="top_logprobs"):
        chat(logprobs=True, top_logprobs=top)
    with pytest.raises(InvalidRequest, match="logprobs"):
        completion(logprobs=top)


@pytest.mark.parametrize(("top", "expected"), [(None, 0), (0, 0), (1, 1), (20, 20)])
def test_logprobs_without_alternatives_are_still_logprobs(top: int | None, expected: int) -> None:
    exchange = chat(logprobs=True, top_logprobs=top)
    assert exchange.request.logprobs == expected
    assert exchange.sent()["logprobs"] is True
    assert exchange.sent().get("top_logprobs", 0) == expected
    assert completion(logprobs=expected).sent()["logprobs"] == expected


NAMED_FUNCTION = {"type": "function", "function": {"name": "f"}}
NAMED_CUSTOM = {"type": "custom", "custom": {"name": "c"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED_FUNCTION]}}


@pytest.mark.parametrize("choice", ["none", "auto", "required", NAMED_FUNCTION, NAMED_CUSTOM, ALLOWED])
def test_every_form_of_tool_choice_reaches_the_upstream(choice: Any) -> None:
    assert chat(tools=[TOOL, CUSTOM], tool_choice=choice).sent()["tool_choice"] == choice


def test_mistrals_word_for_a_required_call_is_taken() -> None:
    assert chat(tools=[TOOL], tool_choice="any").sent()["tool_choice"] == "required"


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "function": {"name": "g"}},
        {"type": "custom", "custom": {"name": "f"}},
        {"type": "function", "function": {"name": ""}},
        {"type": "function", "function": {"name": "f"}, "extra": 1},
        {"type": "function", "function": {"name": "f", "extra": 1}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": []}},
        {"type": "allowed_tools"},
        5,
    ],
)
def test_a_tool_choice_that_its_tools_cannot_meet_is_refused(choice: Any) -> None:
    with pytest.raises(InvalidRequest, match="tool_choice") as caught:
        chat(tools=[TOOL, CUSTOM], tool_choice=choice)
    assert (caught.value.param or "").startswith("tool_choice")


@pytest.mark.parametrize("said", [{"provider_specific_fields": {"refusal": None}}, {"prefix": False}])
def test_what_a_client_writes_into_messages_without_meaning_it_stops_no_target(said: dict[str, Any]) -> None:
    """LiteLLM's messages hold a copy of their fields, and Mistral's say that no answer is to be gone on with."""
    spoken = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", **said}]
    exchange = chat(messages=[*spoken, {"role": "user", "content": "c"}])
    assert exchange.sent()["messages"][1] == spoken[1]
    elsewhere = fit(exchange.request, Capabilities(fields=frozenset()), str, drop=False, completions_as_chat=False)
    assert elsewhere.dropped == (f"messages[1].{next(iter(said))}",)


def test_stream_options_ask_the_upstream_for_usage_always() -> None:
    assert chat(stream=True).sent()["stream_options"] == {"include_usage": True}
    assert "stream_options" not in chat().sent()
    options = {"include_usage": True, "continuous_usage_stats": True, "include_obfuscation": True}
    assert chat(stream=True, stream_options=options).sent()["stream_options"] == options
    plain = chat(stream=True, stream_options={"include_obfuscation": False, "include_usage": False})
    assert plain.sent()["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"continuous_usage_stats": True}, "stream_options.continuous_usage_stats"),
        ({"include_usage": "yes"}, "stream_options.include_usage"),
        ({"surprise": 1}, "stream_options.surprise"),
        ([], "stream_options"),
    ],
)
def test_wrong_stream_options_are_refused_by_name(options: Any, path: str) -> None:
    for make in (chat, completion):
        with pytest.raises(InvalidRequest) as caught:
            make(stream=True, stream_options=options)
        assert caught.value.param == path


def test_a_limit_of_minus_one_is_none() -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        asked = chat(**{name: -1})
        assert (asked.request.max_tokens, asked.request.extras) == (None, {})
    scored = completion(max_tokens=-1).request
    assert (scored.max_tokens, scored.open_ended, scored.extras) == (None, True, {})
    assert not completion(max_tokens=3).request.open_ended
