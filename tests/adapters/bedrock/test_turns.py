"""What Converse gets: turns, tools, media and the rest, each body checked against botocore's own service model."""

import base64
import json
from functools import cache
from typing import Any

import pytest
from botocore.session import get_session
from botocore.validate import ParamValidator

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from tests.adapters.bedrock.exchange import PROVIDER, chat

PNG = base64.b64encode(b"\x89PNG\r\n").decode()
PDF = base64.b64encode(b"%PDF-1.7").decode()
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@cache
def service() -> Any:
    return get_session().get_service_model("bedrock-runtime")


def sent(**fields: Any) -> dict[str, Any]:
    """The body, which botocore would have sent as well."""
    found = chat(**fields).sent()
    report = ParamValidator().validate({"modelId": "m", **found}, service().shape_for("ConverseRequest"))
    assert not report.has_errors(), report.generate_report()
    unknown = found.keys() - service().shape_for("ConverseRequest").members.keys()
    assert not unknown
    return found


def call(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(call_id: str, text: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def test_parallel_results_are_one_turn_and_what_the_user_says_comes_after_them() -> None:
    messages = [
        {"role": "system", "content": "be"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call("a", arguments='{"x": 1.0}'), call("b")]},
        result("b", "two"),
        result("a", "one"),
        {"role": "user", "name": "ann", "content": "and?"},
    ]
    body = sent(messages=messages, tools=TOOLS)
    assert body["system"] == [{"text": "be"}]
    assert body["messages"] == [
        {"role": "user", "content": [{"text": "go"}]},
        {
            "role": "assistant",
            "content": [
                {"toolUse": {"toolUseId": "a", "name": "f", "input": {"x": 1.0}}},
                {"toolUse": {"toolUseId": "b", "name": "f", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "b", "content": [{"text": "two"}]}},
                {"toolResult": {"toolUseId": "a", "content": [{"text": "one"}]}},
                {"text": "ann: and?"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([{"role": "user", "content": "x"}, result("zz")], "'zz' answers no call"),
        ([{"role": "assistant", "content": "", "tool_calls": [call("a")]}], "'a' has no result"),
        ([{"role": "assistant", "content": "", "tool_calls": [call("a")]}, result("a"), result("a")], "two results"),
    ],
)
def test_calls_and_results_that_do_not_belong_together_are_refused_by_id(messages: list[Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        chat(messages=messages, tools=TOOLS).sent()


def test_names_and_ids_that_the_api_forbids_are_mapped_the_same_way_each_time() -> None:
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [call("id with spaces", "get.it")]},
        result("id with spaces"),
    ]
    tools = [{"type": "function", "function": {"name": "get.it"}}]
    choice = {"type": "function", "function": {"name": "get.it"}}
    body = sent(messages=messages, tools=tools, tool_choice=choice)
    (use,), (answer,) = body["messages"][1]["content"], body["messages"][2]["content"]
    assert use["toolUse"]["toolUseId"] == answer["toolResult"]["toolUseId"] != "id with spaces"
    name = use["toolUse"]["name"]
    assert (
        name == body["toolConfig"]["tools"][0]["toolSpec"]["name"] == body["toolConfig"]["toolChoice"]["tool"]["name"]
    )
    assert name.startswith("get_it_")


def test_thoughts_go_back_to_this_provider_alone_and_as_they_were() -> None:
    def turns(origin: str) -> list[Any]:
        details = [
            {"type": "reasoning.text", "text": "hm", "signature": "S", "index": 0, "origin": origin},
            {"type": "reasoning.encrypted", "data": "UkVE", "index": 1, "origin": origin},
        ]
        made = {"role": "assistant", "content": "so", "reasoning_details": details, "tool_calls": [call("a")]}
        return [{"role": "user", "content": "go"}, made, result("a")]

    content = sent(messages=turns(PROVIDER), tools=TOOLS)["messages"][1]["content"]
    assert content[:2] == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "S"}}},
        {"reasoningContent": {"redactedContent": "UkVE"}},
    ]
    content = sent(messages=turns("other"), tools=TOOLS)["messages"][1]["content"]
    assert [next(iter(block)) for block in content] == ["text", "toolUse"]


def test_images_and_files_go_as_bytes_with_names_that_are_allowed() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PNG}"}},
        {"type": "file", "file": {"filename": "a_b?.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
        {"type": "text", "text": " "},
    ]
    assert sent(messages=[{"role": "user", "content": parts}])["messages"][0]["content"] == [
        {"image": {"format": "png", "source": {"bytes": PNG}}},
        {"document": {"format": "pdf", "name": "a b pdf", "source": {"bytes": PDF}}},
        {"text": "a b pdf"},
    ]


def test_no_two_documents_of_a_conversation_share_a_name() -> None:
    def file(name: str | None) -> dict[str, Any]:
        named = {} if name is None else {"filename": name}
        return {"type": "file", "file": {**named, "file_data": f"data:application/pdf;base64,{PDF}"}}

    long = "x" * 300
    first = [file("a.pdf"), file(None), file("A_pdf"), file(long), {"type": "text", "text": "see"}]
    second = [file("a.pdf"), file(None), file(long), {"type": "text", "text": "and"}]
    said = [{"role": "user", "content": first}, {"role": "assistant", "content": "ok"}]
    found = sent(messages=[*said, {"role": "user", "content": second}])["messages"]
    blocks = [block for message in found for block in message["content"]]
    names = [block["document"]["name"] for block in blocks if "document" in block]
    assert names[:3] == ["a pdf", "document", "A pdf 2"]
    assert names[4:6] == ["a pdf 3", "document 2"]
    assert len({name.lower() for name in names}) == len(names) == 7
    assert all(len(name) <= 200 for name in names)


def test_an_image_by_address_is_refused() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    with pytest.raises(UnsupportedParameter, match="not by address"):
        chat(messages=[{"role": "user", "content": parts}]).sent()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", {"auto": {}}),
        ("required", {"any": {}}),
        ({"type": "function", "function": {"name": "f"}}, {"tool": {"name": "f"}}),
    ],
)
def test_the_choice_of_tools_is_translated(choice: Any, expected: Any) -> None:
    assert sent(tools=TOOLS, tool_choice=choice)["toolConfig"]["toolChoice"] == expected


def test_no_choice_is_no_tools_and_can_not_be_had_after_calls() -> None:
    assert "toolConfig" not in sent(tools=TOOLS, tool_choice="none")
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [call("a")]},
        result("a"),
    ]
    with pytest.raises(UnsupportedParameter, match="tool_choice"):
        chat(messages=messages, tools=TOOLS, tool_choice="none").sent()
    assert sent(messages=messages)["toolConfig"]["tools"][0]["toolSpec"]["name"] == "f"


def test_cache_hints_are_points_behind_the_content_four_at_most() -> None:
    def cached(role: str, text: str) -> dict[str, Any]:
        part = {"type": "text", "text": text, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
        return {"role": role, "content": [part]}

    messages = [cached("system", "s"), *[cached("user", str(number)) for number in range(6)]]
    exchange = chat(messages=messages)
    content = exchange.sent()["messages"][0]["content"]
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert exchange.sent()["system"] == [{"text": "s"}, point]
    newest = [block for number in (3, 4, 5) for block in ({"text": str(number)}, point)]
    assert content == [*[{"text": str(number)} for number in range(3)], *newest]


def test_sampling_goes_where_it_belongs() -> None:
    body = sent(max_tokens=9, temperature=0.5, top_p=0.9, stop=["x"], top_k=5, service_tier="flex", metadata={"a": "b"})
    assert body["inferenceConfig"] == {"maxTokens": 9, "temperature": 0.5, "topP": 0.9, "stopSequences": ["x"]}
    assert body["additionalModelRequestFields"] == {"top_k": 5}
    assert body["serviceTier"] == {"type": "flex"}
    assert body["requestMetadata"] == {"a": "b"}


@pytest.mark.parametrize(
    ("model", "fields", "effort"),
    [
        ("anthropic.claude-opus-5", {"thinking": {"type": "adaptive", "display": "summarized"}}, "high"),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", {"thinking": {"type": "enabled", "budget_tokens": 16384}}, None),
        ("anthropic.claude-3-7-sonnet-20250219-v1:0", {"thinking": {"type": "enabled", "budget_tokens": 16384}}, None),
        ("openai.gpt-oss-120b-1:0", {"reasoning_effort": "high"}, None),
        ("amazon.nova-2-lite", None, "high"),
    ],
)
def test_effort_is_what_each_family_calls_it(model: str, fields: Any, effort: Any) -> None:
    body = sent(model=model, reasoning_effort="high")
    assert body.get("additionalModelRequestFields") == fields
    assert body.get("outputConfig", {}).get("effort") == effort


@pytest.mark.parametrize(("model", "least"), [("claude-opus-5", "disabled"), ("claude-sonnet-5-5", "between_tools")])
def test_no_effort_is_the_least_thinking_that_a_model_has_a_word_for(model: str, least: str) -> None:
    body = sent(model=f"anthropic.{model}", reasoning_effort="none")
    assert body["additionalModelRequestFields"] == {"thinking": {"type": least}}


def test_a_schema_is_sent_as_text_byte_for_byte() -> None:
    schema = {"type": "object", "properties": {"é": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    found = sent(response_format=wanted)["outputConfig"]["textFormat"]
    assert json.loads(found["structure"]["jsonSchema"]["schema"]) == schema
    with pytest.raises(UnsupportedParameter, match="json_object"):
        chat(response_format={"type": "json_object"}).sent()


def test_the_path_holds_the_model_encoded() -> None:
    exchange = chat(model="arn:aws:bedrock:us-east-1:1:inference-profile/x")
    upstream: Any = exchange.upstream
    assert upstream.path_of(exchange.request) == (
        "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fx/converse"
    )


def test_thinking_is_off_where_a_turn_must_begin_with_a_thought_that_did_not_come_back() -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [call("a")]}
    thought = {"type": "reasoning.text", "text": "hm", "signature": "S", "index": 0, "origin": PROVIDER}
    for model, details, expected in (
        ("anthropic.claude-sonnet-4-5", [], "disabled"),
        ("anthropic.claude-sonnet-4-5", [thought], "enabled"),
        ("anthropic.claude-sonnet-4-6", [], "adaptive"),
    ):
        messages = [{"role": "user", "content": "x"}, {**called, "reasoning_details": details}, result("a")]
        body = sent(messages=messages, tools=TOOLS, model=model, reasoning_effort="low", max_tokens=4096)
        assert body["additionalModelRequestFields"]["thinking"]["type"] == expected
