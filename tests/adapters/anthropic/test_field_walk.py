"""Law 8: every field of a Messages request is mapped, forwarded or refused by name, and chat's towards Anthropic too.

The names come from the anthropic SDK's own types, so that a new field fails here until it is decided.
"""

import json
from typing import Any, get_type_hints

import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from msgspec.structs import replace

from adapters.anthropic.front import MessagesFront
from adapters.anthropic.upstream import MessagesUpstream
from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import ReasoningOptions, Request, set_fields
from gateway.routing.requirements import fit
from providers.base import Capabilities
from providers.remote.anthropic import AnthropicProvider
from tests.adapters.anthropic.exchange import chat, messages
from tests.adapters.field_rules import check_hint, check_of_one_dialect, check_spelled, refused_param
from tests.providers.remote.calls import settings

TOOL = {
    "name": "f",
    "description": "d",
    "input_schema": {"type": "object", "z": 1},
    "strict": True,
    "cache_control": {"type": "ephemeral", "ttl": "1h"},
}
RICH_TOOL = TOOL | {"allowed_callers": ["direct"], "defer_loading": True, "input_examples": [{"a": 1}]}
HOSTED = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
SCHEMA = {"type": "json_schema", "schema": {"type": "object", "additionalProperties": False}}

MAPPED: dict[str, Any] = {
    "max_tokens": 5,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    "metadata": {"user_id": "u-1"},
    "model": "some/model",
    "output_config": {"effort": "high", "format": SCHEMA},
    "service_tier": "standard_only",
    "stop_sequences": ["a", "b"],
    "stream": True,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
    "tools": [TOOL, RICH_TOOL, HOSTED],
    "temperature": 0.5,
    "top_k": 40,
    "top_p": 0.25,
}
FORWARDED: dict[str, Any] = {
    "cache_control": {"type": "ephemeral"},
    "container": "container_1",
    "diagnostics": {"previous_message_id": "msg_1"},
    "inference_geo": "us",
    "speed": "fast",
}
HINTS: dict[str, Any] = {
    "cache_control": {"type": "ephemeral"},
    "metadata": {"user_id": "u", "team": "t"},
    "context_management": {"edits": [{"keep": "all", "type": "clear_thinking_20251015"}]},
    "speed": "standard",
}
OLDER = {"temperature", "top_k", "top_p"}
"""The SDK's types have these no more; the API's older version takes them."""
HEADERS = {"user_profile_id", "workspace_id"}
"""The SDK sends these as headers, which are the operator's to set."""


def names_in(*params: Any) -> set[str]:
    return {name for param in params for name in get_type_hints(param)}


def test_every_field_of_the_sdk_is_decided() -> None:
    found = names_in(
        message_create_params.MessageCreateParamsStreaming, message_create_params.MessageCreateParamsNonStreaming
    )
    assert found | OLDER == {*MAPPED, *FORWARDED, "tool_choice"} | HEADERS


def test_every_field_of_a_token_count_is_decided() -> None:
    assert names_in(message_count_tokens_params.MessageCountTokensParams) <= {*MAPPED, *FORWARDED, "tool_choice"} | (
        HEADERS
    )


@pytest.mark.parametrize(("name", "value"), (MAPPED | FORWARDED).items())
def test_a_field_reaches_anthropic_as_it_came(name: str, value: Any) -> None:
    sent = messages(**{name: value}).sent()
    assert json.dumps(sent.pop(name)) == json.dumps(value)
    assert set(sent) <= {"model", "messages", "max_tokens"}


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "auto"},
        {"type": "any"},
        {"type": "tool", "name": "f"},
        {"type": "none"},
        {"type": "auto", "disable_parallel_tool_use": True},
        {"type": "any", "disable_parallel_tool_use": True},
        {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    ],
)
def test_every_form_of_tool_choice_reaches_anthropic(choice: Any) -> None:
    assert messages(tools=[TOOL], tool_choice=choice).sent()["tool_choice"] == choice


@pytest.mark.parametrize(
    "thinking",
    [
        {"type": "adaptive"},
        {"type": "adaptive", "display": "summarized"},
        {"type": "disabled"},
        {"type": "between_tools"},
        {"type": "enabled", "budget_tokens": 1024},
        {"type": "adaptive", "display": "updates", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
    ],
)
@pytest.mark.parametrize("effort", [None, "low", "max"])
def test_every_form_of_thinking_reaches_anthropic(thinking: Any, effort: str | None) -> None:
    fields = {"thinking": thinking} | ({"output_config": {"effort": effort}} if effort else {})
    sent = messages(**fields).sent()
    assert {name: sent[name] for name in fields} == fields
    assert set(sent) == {"model", "messages", "max_tokens", *fields}


def test_what_objects_of_the_body_have_beside_what_is_mapped_reaches_anthropic_and_is_named_elsewhere() -> None:
    said = {"task_budget": {"type": "tokens", "total": 20000}}
    exchange = messages(output_config=said)
    assert exchange.sent()["output_config"] == said
    assert exchange.request.extras.keys() == {"output_config.task_budget"}
    assert messages(output_config={"effort": "low", **said}).sent()["output_config"] == {"effort": "low", **said}


def test_a_mode_of_the_responses_api_is_the_usual_way_or_refused() -> None:
    said = (Message(role=USER, parts=(Text(text="hi"),)),)
    usual = Request(model="m", dialect="openai.responses", messages=said, reasoning=ReasoningOptions(mode="standard"))
    assert "thinking" not in json.loads(MessagesUpstream("x").render_request(usual))
    with pytest.raises(UnsupportedParameter, match=r"reasoning\.mode"):
        MessagesUpstream("x").render_request(replace(usual, reasoning=ReasoningOptions(mode="pro")))


@pytest.mark.parametrize("name", sorted(FORWARDED.keys() - HINTS.keys()))
def test_a_field_that_only_anthropic_knows_is_refused_by_name_elsewhere(name: str) -> None:
    check_of_one_dialect(messages(**{name: FORWARDED[name]}), name)


@pytest.mark.parametrize(("name", "value"), HINTS.items())
def test_a_hint_reaches_anthropic_as_it_came_and_stops_no_other_target(name: str, value: Any) -> None:
    assert messages(**{name: value}).sent()[name] == value
    check_hint(messages(**{name: value}), name)


def test_a_hint_of_a_tool_stops_no_target_either() -> None:
    tool = {"name": "f", "input_schema": {"type": "object"}, "eager_input_streaming": True}
    assert messages(tools=[tool]).sent()["tools"] == [tool]
    check_hint(messages(tools=[tool]), "tools[0].eager_input_streaming")


def test_the_users_id_is_a_hint_under_the_clients_name_for_it() -> None:
    exchange = messages(metadata={"user_id": "u"})
    nothing = Capabilities(fields=frozenset(("max_tokens",)))
    found = fit(exchange.request, nothing, exchange.front.client_field, drop=False, completions_as_chat=False)
    assert found.dropped == ("metadata.user_id",)


@pytest.mark.parametrize(
    ("name", "value"),
    [("speed", "fast"), ("context_management", {"edits": [{"type": "clear_tool_uses_20250919"}]})],
)
def test_a_value_that_changes_the_answer_is_no_hint(name: str, value: Any) -> None:
    check_of_one_dialect(messages(**{name: value}), name)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        ({"output_config": {"format": SCHEMA}}, "output_config.format"),
        ({"stop_sequences": ["x"]}, "stop_sequences"),
    ],
)
def test_what_a_target_lacks_is_named_as_this_client_spells_it(fields: dict[str, Any], param: str) -> None:
    check_spelled(messages(**fields), param)


@pytest.mark.parametrize("name", sorted({*MAPPED, *FORWARDED, "tool_choice"} - {"model", "messages", "max_tokens"}))
def test_a_null_is_the_same_as_no_field(name: str) -> None:
    assert messages(**{name: None}).request == messages().request


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("model", "", "model"),
        ("model", None, "model"),
        ("max_tokens", -1, "max_tokens"),
        ("max_tokens", "9", "max_tokens"),
        ("max_tokens", None, "max_tokens"),
        ("messages", [], "messages"),
        ("messages", None, "messages"),
        ("messages", [{"role": "tool", "content": "x"}], "messages[0].role"),
        ("messages", [{"role": "user", "content": 5}], "messages[0].content"),
        ("messages", [{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0].type"),
        ("messages", [{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        (
            "messages",
            [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "x"}}]}],
            "messages[0].content[0].source.media_type",
        ),
        (
            "messages",
            [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}],
            "messages[0].content",
        ),
        (
            "messages",
            [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "x"}]}],
            "messages[0].content[0].input",
        ),
        (
            "messages",
            [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "a"}]}],
            "messages[0].content",
        ),
        ("system", [{"type": "image"}], "system[0].source"),
        ("system", [{"type": "search_result"}], "system"),
        ("temperature", 1.1, "temperature"),
        ("top_p", -0.1, "top_p"),
        ("top_k", 1.5, "top_k"),
        ("stop_sequences", [""], "stop_sequences[0]"),
        ("stop_sequences", "x", "stop_sequences"),
        ("metadata", {"user_id": 5}, "metadata.user_id"),
        ("thinking", {"type": "enabled"}, "thinking.budget_tokens"),
        ("thinking", {"type": "enabled", "budget_tokens": 1023}, "thinking.budget_tokens"),
        ("thinking", {"type": "sometimes"}, "thinking.type"),
        ("output_config", {"effort": "huge"}, "output_config.effort"),
        ("output_config", {"format": {"type": "xml"}}, "output_config.format.type"),
        ("output_config", {"format": {"type": "json_schema"}}, "output_config.format.schema"),
        ("tools", [{"name": "f"}], "tools[0].input_schema"),
        ("tools", [{"input_schema": {}}], "tools[0].name"),
        ("tools", {}, "tools"),
        ("tool_choice", {"type": "any"}, "tool_choice"),
        ("tool_choice", {"type": "tool", "name": "g"}, "tool_choice"),
        ("tool_choice", {"type": "sometimes"}, "tool_choice"),
        ("stream", "yes", "stream"),
    ],
)
def test_a_wrong_value_is_refused_by_its_path(name: str, value: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages(**{name: value})
    assert caught.value.status == 400
    assert caught.value.param == param


def test_a_request_to_count_needs_no_limit_and_is_sent_without_what_is_not_counted() -> None:
    front = MessagesFront()
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [TOOL], "system": "s"}
    request = front.parse_count(json.dumps(body).encode(), max_depth=64)
    assert json.loads(messages().messages_upstream.render_count(request)) == body


CHAT_REFUSED = ("logprobs", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "verbosity", "store")


def test_chat_fields_that_anthropic_lacks_are_not_declared() -> None:
    fields = AnthropicProvider(settings()).capabilities("m").fields
    exchange = chat(
        logprobs=True, seed=1, presence_penalty=1, frequency_penalty=1, logit_bias={"1": 1}, verbosity="low", store=True
    )
    assert set(set_fields(exchange.request)) - fields == set(CHAT_REFUSED)


ADAPTIVE = {"type": "adaptive", "display": "summarized"}
"""Newer models tell no thought that is not asked for."""


@pytest.mark.parametrize(
    ("fields", "outgoing"),
    [
        ({"max_completion_tokens": 7}, {"max_tokens": 7}),
        ({}, {"max_tokens": 4096}),
        ({"stop": "x"}, {"stop_sequences": ["x"]}),
        ({"user": "u"}, {"metadata": {"user_id": "u"}}),
        ({"user": "u", "safety_identifier": "s"}, {"metadata": {"user_id": "s"}}),
        ({"service_tier": "default"}, {"service_tier": "standard_only"}),
        ({"reasoning_effort": "minimal"}, {"thinking": ADAPTIVE, "output_config": {"effort": "low"}}),
        ({"reasoning_effort": "max"}, {"thinking": ADAPTIVE, "output_config": {"effort": "max"}}),
        ({"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        (
            {"reasoning_effort": "low", "include_reasoning": False},
            {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "low"}},
        ),
        (
            {"thinking_token_budget": 2000, "include_reasoning": False},
            {"thinking": {"type": "enabled", "budget_tokens": 2000, "display": "omitted"}, "max_tokens": 6096},
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}},
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        ),
    ],
)
def test_chat_fields_become_anthropics(fields: dict[str, Any], outgoing: dict[str, Any]) -> None:
    sent = chat(**fields).sent()
    assert {name: sent[name] for name in outgoing} == outgoing
    assert set(sent) == {"model", "messages", "max_tokens", *outgoing}


@pytest.mark.parametrize(
    ("model", "effort", "limit", "thinking"),
    [
        ("claude-sonnet-4-5", "low", None, {"type": "enabled", "budget_tokens": 2048}),
        ("claude-3-7-sonnet-20250219", "high", 4096, {"type": "enabled", "budget_tokens": 2048}),
        ("claude-haiku-4-5-20251001", "minimal", 1500, {"type": "enabled", "budget_tokens": 1024}),
        ("claude-opus-4-6", "low", None, ADAPTIVE),
        ("claude-opus-5", "low", None, ADAPTIVE),
    ],
)
def test_an_effort_is_a_budget_on_models_that_do_not_decide_themselves(
    model: str, effort: str, limit: int | None, thinking: dict[str, Any]
) -> None:
    sent = chat(model=model, reasoning_effort=effort, max_completion_tokens=limit).sent()
    assert sent["thinking"] == thinking
    assert ("output_config" in sent) == (thinking["type"] == "adaptive")
    assert sent["max_tokens"] > thinking.get("budget_tokens", 0)


CHAT_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}


@pytest.mark.parametrize(
    ("parameters", "outgoing"),
    [
        (b'{"type": "object", "z": 1.50}', b'{"type": "object", "z": 1.50}'),
        (b'{"properties": {}}', b'{"type":"object","properties": {}}'),
        (b"{ }", b'{"type":"object" }'),
        (None, b'{"type":"object","properties":{}}'),
    ],
)
def test_a_tools_schema_is_sent_as_it_came_and_is_an_objects(parameters: bytes | None, outgoing: bytes) -> None:
    inner = b'"name":"f"' + (b"" if parameters is None else b',"parameters":' + parameters)
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{%b}}]}'
    exchange = chat()
    request = exchange.front.parse(body % inner, max_depth=64)
    assert b'"input_schema":' + outgoing in exchange.upstream.render_request(request)


def test_allowed_tools_are_the_only_ones_that_are_sent() -> None:
    other = {"type": "function", "function": {"name": "g"}}
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    sent = chat(tools=[CHAT_TOOL, other], tool_choice=choice).sent()
    assert [tool["name"] for tool in sent["tools"]] == ["g"]
    assert sent["tool_choice"] == {"type": "any"}


FORCED: dict[str, Any] = {"tools": [CHAT_TOOL], "tool_choice": "required"}


@pytest.mark.parametrize("model", ["claude-opus-4-6", "claude-opus-5", "claude-sonnet-5", "claude-haiku-5-5"])
def test_a_model_that_decides_itself_how_much_to_think_can_be_made_to_call_a_tool(model: str) -> None:
    sent = chat(**FORCED, model=model, reasoning_effort="low", max_completion_tokens=4096).sent()
    assert (sent["tool_choice"], sent["thinking"]) == ({"type": "any"}, ADAPTIVE)


@pytest.mark.parametrize(
    ("model", "least"), [("claude-opus-5", "disabled"), ("claude-sonnet-5-5", "between_tools"), ("m", "disabled")]
)
def test_no_effort_is_the_least_thinking_that_a_model_has_a_word_for(model: str, least: str) -> None:
    assert chat(model=model, reasoning_effort="none").sent()["thinking"] == {"type": least}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 1.5}, "temperature"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({**FORCED, "reasoning_effort": "low", "model": "claude-sonnet-4-5"}, "tool_choice"),
        ({**FORCED, "model": "claude-fable-5-1"}, "tool_choice"),
        ({**FORCED, "model": "anthropic.claude-opus-5-5"}, "tool_choice"),
        ({**FORCED, "model": "claude-sonnet-5.5"}, "tool_choice"),
        ({"model": "claude-sonnet-4-5", "reasoning_effort": "low", "max_completion_tokens": 1024}, "reasoning_effort"),
    ],
)
def test_what_anthropic_would_refuse_is_refused_by_the_clients_name(fields: dict[str, Any], param: str) -> None:
    assert refused_param(chat(**fields)) == param
