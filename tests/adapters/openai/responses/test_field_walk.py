"""Law 8: every field of a request is mapped, forwarded, answered by the gateway, or refused by name.

The names come from the openai SDK's own types, so that a new field fails here until it is decided.
"""

import json
from typing import Any, get_type_hints

import pytest
from openai.types.responses import response_create_params as params

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.responses.parse import read_body
from adapters.openai.vocabulary import RESPONSES_FIELDS
from tests.adapters.field_rules import check_hint
from tests.adapters.openai.responses.exchange import front_of, responses

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True, "description": "d"}
CUSTOM = {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}}
NAMESPACE = {"type": "namespace", "name": "n", "description": "d", "tools": [TOOL, CUSTOM]}
SEARCH = {"type": "web_search", "search_context_size": "low"}
MCP = {"type": "mcp", "server_label": "s", "server_url": "https://x"}
SCHEMA = {"type": "json_schema", "name": "s", "schema": {"type": "object"}, "strict": True}

SENT: dict[str, Any] = {
    # Reaches an upstream of the dialect as it came.
    "access_programs": {"cyber": "standard"},
    "context_management": [{"type": "compaction"}],
    "image": {"context_compression": "enabled"},
    "max_output_tokens": 16,
    "moderation": {"model": "omni"},
    "parallel_tool_calls": False,
    "prompt": {"id": "pmpt_1", "version": "2"},
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
    "prompt_cache_retention": "24h",
    "reasoning": {"effort": "high", "summary": "auto", "context": "auto", "mode": "pro", "later": 1},
    "safety_identifier": "s",
    "service_tier": "flex",
    "stream": True,
    "temperature": 0.5,
    "text": {"format": SCHEMA, "verbosity": "low", "later": [1]},
    "tools": [TOOL, CUSTOM, NAMESPACE, SEARCH, MCP],
    "top_logprobs": 3,
    "top_p": 0.25,
    "truncation": "auto",
    "user": "u",
}
ENGINE: dict[str, Any] = {
    "frequency_penalty": -2.0,
    "presence_penalty": 2.0,
    "seed": 7,
    "stop": ["a", "b"],
    "logit_bias": {"7": 0.5},
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
    "include_reasoning": False,
    "separate_reasoning": False,
    "thinking_token_budget": 100,
    "chat_template": "{{ messages }}",
    "chat_template_kwargs": {"thinking": True},
    "add_generation_prompt": False,
    "continue_final_message": True,
    "documents": [{"text": "d"}],
    "a_field_of_tomorrow": {"x": [1.50]},
}
MIRRORED: dict[str, Any] = {
    # The gateway answers for these itself, and the response says them again.
    "metadata": {"k": "v"},
    "store": False,
}
REFUSED = {"background": True, "conversation": "conv_1", "previous_response_id": "resp_1", "background_options": {}}
APART = ("input", "model", "instructions", "include", "max_tool_calls", "stream_options", "tool_choice")
READ_BY_THE_GATEWAY = ("request_id", "session_id")


def test_every_field_of_the_sdk_is_decided() -> None:
    known = set(get_type_hints(params.ResponseCreateParamsStreaming)) | set(
        get_type_hints(params.ResponseCreateParamsNonStreaming)
    )
    assert known == set(SENT) | set(MIRRORED) | set(REFUSED) | set(APART)


@pytest.mark.parametrize("name", READ_BY_THE_GATEWAY)
def test_ids_are_read_by_the_gateway_and_go_into_no_body(name: str) -> None:
    said: dict[str, Any] = {name: "r-1"}
    exchange = responses(**said)
    assert getattr(exchange.request, name) == "r-1"
    assert exchange.sent() == responses().sent()


def test_every_field_of_the_table_is_decided() -> None:
    assert set(RESPONSES_FIELDS.by_wire) <= set(SENT) | set(ENGINE) | set(READ_BY_THE_GATEWAY)


@pytest.mark.parametrize(("name", "value"), (SENT | ENGINE).items())
def test_a_field_reaches_an_upstream_of_the_dialect_as_it_came(name: str, value: Any) -> None:
    sent = responses(**{name: value}).sent()
    found = sent.pop(name)
    assert found == value
    assert set(sent) <= {"model", "input", "store", "stream", "include"}


def test_labels_of_codex_reach_an_upstream_of_the_dialect_and_stop_no_other_target() -> None:
    said: dict[str, Any] = {"client_metadata": {"x-codex-installation-id": "i"}}
    assert responses(**said).sent()["client_metadata"] == said["client_metadata"]
    check_hint(responses(**said), "client_metadata")
    label = {"internal_chat_message_metadata_passthrough": {"turn_id": "t"}}
    item = {"type": "message", "role": "user", "content": "hi", **label}
    assert responses(input=[item]).sent()["input"] == [item]
    check_hint(responses(input=[item]), "input[0].internal_chat_message_metadata_passthrough")


def test_numbers_and_schemas_are_not_rebuilt() -> None:
    raw = b'{"model":"m","input":"x","later":{"n":12345678901234567890123,"x":1.50}}'
    exchange = type(responses())(raw)
    assert b'{"n":12345678901234567890123,"x":1.50}' in exchange.upstream.render_request(exchange.request)


@pytest.mark.parametrize(("name", "value"), REFUSED.items())
def test_what_needs_a_store_is_refused_by_name_without_one(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        responses(**{name: value})
    assert caught.value.param == name
    assert name in caught.value.message


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"completion_window": "2h"}, "background_options.completion_window"),
        ({"continuation_id": "c"}, "background_options.continuation_id"),
        ({"later": 1}, "background_options.later"),
        ({"completion_window": 3}, "background_options.completion_window"),
    ],
)
def test_options_that_ask_for_another_queue_are_refused_by_name(options: dict[str, Any], param: str) -> None:
    body = {"model": "m", "input": "hi", "background": True}
    with pytest.raises(InvalidRequest) as caught:
        read_body(json.dumps({**body, "background_options": options}).encode(), max_depth=8)
    assert caught.value.param == param
    soonest = read_body(
        json.dumps({**body, "background_options": {"completion_window": "soonest"}}).encode(), max_depth=8
    )
    assert soonest.state.background


@pytest.mark.parametrize(("name", "value"), [("background", False), ("store", None), ("conversation", None)])
def test_what_asks_for_nothing_is_taken(name: str, value: Any) -> None:
    assert responses(**{name: value}).request == responses().request


@pytest.mark.parametrize(("name", "value"), MIRRORED.items())
def test_what_the_gateway_answers_for_stays_there(name: str, value: Any) -> None:
    exchange = responses(**{name: value})
    assert json.loads(exchange.request.mirrored[name]) == value
    assert exchange.sent().get(name) in (None, False)


def test_nothing_is_stored_at_the_upstream() -> None:
    assert responses(store=True).sent()["store"] is False
    assert json.loads(responses(store=True).request.mirrored["store"]) is False


def test_include_is_asked_of_the_upstream_where_it_means_something() -> None:
    asked = ["reasoning.encrypted_content", "message.output_text.logprobs", "web_search_call.action.sources"]
    assert responses(include=asked, tools=[SEARCH]).sent()["include"] == asked
    plain = responses(include=asked, top_logprobs=2).sent()
    assert (plain["include"], plain["top_logprobs"]) == (asked[:2], 2)
    assert "include" not in responses().sent()
    assert responses(reasoning={"effort": "low"}).sent()["include"] == ["reasoning.encrypted_content"]


def test_max_tool_calls_counts_hosted_tools_alone() -> None:
    assert responses(max_tool_calls=3, tools=[SEARCH]).sent()["max_tool_calls"] == 3
    assert "max_tool_calls" not in responses(max_tool_calls=3, tools=[TOOL]).sent()
    assert responses(max_tool_calls=3).request.mirrored["max_tool_calls"] == b"3"


@pytest.mark.parametrize(
    "choice",
    [
        "none",
        "auto",
        "required",
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "c"},
        {"type": "web_search"},
        {"type": "mcp", "server_label": "s", "name": "x"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}, SEARCH]},
    ],
)
def test_every_form_of_tool_choice_reaches_the_upstream(choice: Any) -> None:
    assert responses(tools=[TOOL, CUSTOM, SEARCH, MCP], tool_choice=choice).sent()["tool_choice"] == choice


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("tool_choice", {"type": "function", "name": "g"}, "tool_choice"),
        ("tool_choice", {"type": "function"}, "tool_choice.name"),
        ("tool_choice", {"type": "web_search"}, "tool_choice"),
        ("tool_choice", {"type": "allowed_tools", "mode": "none", "tools": []}, "tool_choice.mode"),
        ("tool_choice", "maybe", "tool_choice"),
        ("tools", [{"type": "function"}], "tools[0].name"),
        ("tools", [{"name": "f"}], "tools[0].type"),
        ("tools", [{"type": "namespace", "name": "n", "tools": []}], "tools[0].tools"),
        ("tools", [{"type": "namespace", "name": "n", "tools": [SEARCH]}], "tools[0].tools[0].type"),
        ("tools", "x", "tools"),
        ("include", ["x"], "include[0]"),
        ("include", "x", "include"),
        ("metadata", {"k": "v" * 513}, "metadata"),
        ("metadata", {"k" * 65: "v"}, "metadata"),
        ("metadata", {str(i): "v" for i in range(17)}, "metadata"),
        ("metadata", {"k": 1}, "metadata"),
        ("truncation", "some", "truncation"),
        ("max_output_tokens", 0, "max_output_tokens"),
        ("max_tool_calls", 0, "max_tool_calls"),
        ("top_logprobs", 21, "top_logprobs"),
        ("temperature", 2.5, "temperature"),
        ("instructions", 5, "instructions"),
        ("reasoning", "high", "reasoning"),
        ("reasoning", {"effort": 5}, "reasoning.effort"),
        ("text", {"format": {"type": "json_schema"}}, "text.format.name"),
        ("text", {"format": {}}, "text.format.type"),
        ("background", "yes", "background"),
        ("store", 1, "store"),
        ("conversation", {}, "conversation.id"),
        ("previous_response_id", "", "previous_response_id"),
        ("stream_options", {"include_obfuscation": True}, "stream_options"),
        ("model", "", "model"),
        ("model", None, "model"),
        ("previous_input_messages", [{"role": "user", "content": 5}], "previous_input_messages[0].content"),
    ],
)
def test_what_is_wrong_is_refused_by_its_path(name: str, value: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        responses(**{"tools": [TOOL], name: value})
    assert (caught.value.param or "").startswith(path)


@pytest.mark.parametrize("name", sorted({*SENT, *ENGINE, *MIRRORED, *REFUSED, *APART} - {"model", "input"}))
def test_a_null_is_the_same_as_no_field(name: str) -> None:
    nothing: dict[str, Any] = {name: None}
    assert responses(**nothing).request == responses().request


def test_a_field_is_named_as_the_client_spells_it() -> None:
    spell = front_of().client_field
    assert [spell(name) for name in ("messages", "max_tokens", "logprobs", "output_format", "verbosity")] == [
        "input",
        "max_output_tokens",
        "top_logprobs",
        "text.format",
        "text.verbosity",
    ]
    assert spell("reasoning.effort") == "reasoning.effort"
    assert spell("include_stop") == "include_stop_str_in_output"


def test_a_hosted_tool_goes_to_its_own_dialect_alone() -> None:
    with pytest.raises(UnsupportedParameter):
        ChatUpstream().render_request(responses(tools=[SEARCH]).request)


def test_tools_and_formats_reach_a_chat_upstream_in_its_form() -> None:
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    asked = responses(tools=[TOOL, CUSTOM, NAMESPACE], tool_choice=allowed, text={"format": SCHEMA})
    sent = json.loads(ChatUpstream().render_request(asked.request))
    function = {key: value for key, value in TOOL.items() if key != "type"}
    custom = {
        "name": "c",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: X"}},
    }
    assert sent["tools"] == [
        {"type": "function", "function": function},
        {"type": "custom", "custom": custom},
        {"type": "function", "function": {**function, "name": "n__f", "description": "d\n\nd"}},
        {"type": "custom", "custom": {**custom, "name": "n__c", "description": "d"}},
    ]
    assert sent["tool_choice"]["allowed_tools"]["tools"] == [{"type": "function", "function": {"name": "f"}}]
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {key: value for key, value in SCHEMA.items() if key != "type"},
    }
