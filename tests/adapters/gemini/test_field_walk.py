"""Law 8: every field of a generateContent request is mapped, forwarded or refused by name, and chat's towards Gemini.

The names come from the google-genai SDK's own types, so that a new field fails here until it is decided.
"""

import json
from typing import Any

import pytest
from google.genai import types
from pydantic.alias_generators import to_camel

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import set_fields
from adapters.gemini.front import GenerateFront
from providers.remote.gemini import GeminiProvider
from tests.adapters.field_rules import check_hint, check_of_one_dialect, check_spelled, refused_param
from tests.adapters.gemini.exchange import Exchange, chat, generate
from tests.providers.remote.calls import settings

SCHEMA = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": ["integer", "null"]}}}
OLDER_SCHEMA = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True, "enum": ["x"]}}}
TOOL = {"name": "f", "description": "d", "parametersJsonSchema": SCHEMA, "behavior": "BLOCKING"}
CONFIG: dict[str, Any] = {
    "temperature": 0.5,
    "topP": 0.25,
    "topK": 40,
    "maxOutputTokens": 5,
    "stopSequences": ["a", "b"],
    "responseLogprobs": True,
    "presencePenalty": 0.5,
    "frequencyPenalty": -0.5,
    "seed": 7,
    "responseMimeType": "application/json",
    "responseModalities": ["TEXT", "IMAGE"],
    "thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True},
}
"""Fields of the config that the canonical form has."""
WITH_OTHERS: dict[str, Any] = {
    "logprobs": {"responseLogprobs": True, "logprobs": 3},
    "responseSchema": {"responseMimeType": "application/json", "responseSchema": OLDER_SCHEMA},
    "responseJsonSchema": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA},
}
FORWARDED_CONFIG: dict[str, Any] = {
    "routingConfig": {"autoMode": {}},
    "modelSelectionConfig": {"featureSelectionPreference": "BALANCED"},
    "mediaResolution": "MEDIA_RESOLUTION_LOW",
    "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}},
    "audioTimestamp": True,
    "imageConfig": {"aspectRatio": "1:1"},
    "enableEnhancedCivicAnswers": True,
    "audioTranscriptionConfig": {"languageCodes": ["de"]},
    "continuationToken": "VE9L",
    "generationOutputConfig": {"x": 1},
    "enableAffectiveDialog": True,
    "responseFormat": [{"text": {}}],
    "translationConfig": {"targetLanguageCode": "de"},
}
TOP: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "s"}]},
    "tools": [{"functionDeclarations": [TOOL, {"name": "g"}]}, {"googleSearch": {}}, {"codeExecution": {"z": 1}}],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    "serviceTier": "flex",
    "store": True,
}
FORWARDED: dict[str, Any] = {
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_ONLY_HIGH"}],
    "cachedContent": "cachedContents/x",
    "labels": {"a": "b"},
    "modelArmorConfig": {"promptTemplateName": "t"},
}
HINTS: list[tuple[str, Any]] = [
    ("labels", {"a": "b"}),
    ("safetySettings", []),
    ("safetySettings", [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]),
    ("safetySettings", [{"category": "a", "threshold": "OFF"}, {"category": "b", "threshold": "BLOCK_NONE"}]),
]
OF_THE_SDK = {
    # Not of the wire: how the SDK sends, repeats or calls functions itself.
    "httpOptions",
    "shouldReturnHttpResponse",
    "automaticFunctionCalling",
    "automaticContinuation",
    "candidateCount",  # asked for one by one: see the test below
}
REPEATED = {"candidateCount"}


def test_every_field_of_the_sdk_is_decided() -> None:
    found = {to_camel(name) for name in types.GenerateContentConfig.model_fields}
    assert found <= {*CONFIG, *WITH_OTHERS, *FORWARDED_CONFIG, *TOP, *FORWARDED} | OF_THE_SDK
    wire = {to_camel(name) for name in types.GenerationConfig.model_fields}
    assert wire <= {*CONFIG, *WITH_OTHERS, *FORWARDED_CONFIG} | REPEATED


@pytest.mark.parametrize(("name", "value"), (CONFIG | FORWARDED_CONFIG).items())
def test_a_field_of_the_config_reaches_gemini_as_it_came(name: str, value: Any) -> None:
    sent = generate(generationConfig={name: value}).sent()
    assert json.dumps(sent["generationConfig"]) == json.dumps({name: value})
    assert set(sent) == {"contents", "generationConfig"}


@pytest.mark.parametrize("config", WITH_OTHERS.values(), ids=WITH_OTHERS)
def test_a_field_that_needs_another_reaches_gemini_with_it(config: dict[str, Any]) -> None:
    assert generate(generationConfig=config).sent()["generationConfig"] == config


@pytest.mark.parametrize(("name", "value"), (TOP | FORWARDED).items())
def test_a_field_of_the_body_reaches_gemini_as_it_came(name: str, value: Any) -> None:
    sent = generate(**{name: value}).sent()
    assert json.dumps(sent.pop(name)) == json.dumps(value)
    assert set(sent) == {"contents"}


def test_names_as_protocol_buffers_have_them_and_single_objects_are_taken() -> None:
    snake = {
        "contents": {"role": "user", "parts": {"inline_data": {"mime_type": "image/png", "data": "iVBORw0K"}}},
        "system_instruction": {"parts": {"text": "s"}},
        "generation_config": {"max_output_tokens": 5, "thinking_config": {"thinking_budget": 3}},
        "tools": {"function_declarations": {"name": "f", "parameters_json_schema": {"type": "object"}}},
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["f"]}},
        "safety_settings": [{"category": "c"}],
    }
    assert Exchange(json.dumps(snake).encode()).sent() == {
        "contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}}]}],
        "systemInstruction": {"parts": [{"text": "s"}]},
        "generationConfig": {"maxOutputTokens": 5, "thinkingConfig": {"thinkingBudget": 3}},
        "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": "object"}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "safetySettings": [{"category": "c"}],
    }


@pytest.mark.parametrize(
    "thinking",
    [
        {"thinkingBudget": 0},
        {"thinkingBudget": -1},
        {"thinkingBudget": 512},
        {"thinkingLevel": "MINIMAL"},
        {"thinkingLevel": "XHIGH", "includeThoughts": False},
        {"includeThoughts": True},
    ],
)
def test_every_form_of_thinking_reaches_gemini(thinking: dict[str, Any]) -> None:
    for model in ("gemini-3-pro", "gemini-2.5-flash"):
        sent = generate(model=model, generationConfig={"thinkingConfig": thinking}).sent()
        assert sent["generationConfig"]["thinkingConfig"] == thinking


def test_candidates_are_asked_for_one_by_one() -> None:
    exchange = generate(generationConfig={"candidateCount": 3})
    assert exchange.request.n == 3
    assert exchange.sent().get("generationConfig", {}) == {}


def test_an_older_schema_is_a_json_schema_for_other_targets() -> None:
    declaration = {"name": "f", "parameters": {**OLDER_SCHEMA, "required": ["a"], "maxItems": "3"}}
    exchange = generate(tools=[{"functionDeclarations": [declaration]}])
    assert exchange.request.tools is not None
    assert json.loads(exchange.request.tools[0].parameters or b"") == {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"], "enum": ["x", None]}},
        "required": ["a"],
        "maxItems": 3,
    }
    config = {"responseMimeType": "application/json", "responseSchema": OLDER_SCHEMA}
    wanted = generate(generationConfig=config).request.output_format
    assert wanted is not None
    assert json.loads(wanted.schema or b"")["properties"]["a"]["type"] == ["string", "null"]


def test_an_enum_is_a_choice_everywhere_and_reaches_gemini_as_it_came() -> None:
    config = {
        "responseMimeType": "text/x.enum",
        "responseSchema": {"enum": ["yes", "no"], "type": "STRING", "title": "t"},
    }
    exchange = generate(generationConfig=config)
    wanted = exchange.request.output_format
    assert wanted is not None
    assert (wanted.kind, wanted.choices) == ("choice", ("yes", "no"))
    assert exchange.sent()["generationConfig"] == config


@pytest.mark.parametrize("schema", [{"type": "STRING"}, {"enum": []}, {"enum": [1]}])
def test_an_enum_without_its_texts_goes_to_gemini_alone(schema: dict[str, Any]) -> None:
    config = {"responseMimeType": "text/x.enum", "responseSchema": schema}
    exchange = generate(generationConfig=config)
    assert exchange.sent()["generationConfig"] == config
    assert exchange.request.output_format is None


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        *[({name: value}, name) for name, value in FORWARDED.items() if name != "labels"],
        *[
            ({"generationConfig": {name: value}}, f"generationConfig.{name}")
            for name, value in FORWARDED_CONFIG.items()
        ],
        ({"toolConfig": {"retrievalConfig": {"languageCode": "de"}}}, "toolConfig"),
    ],
)
def test_a_field_that_only_gemini_knows_is_refused_by_name_elsewhere(fields: dict[str, Any], name: str) -> None:
    check_of_one_dialect(generate(**fields), name)


@pytest.mark.parametrize(("name", "value"), HINTS)
def test_a_hint_reaches_gemini_as_it_came_and_stops_no_other_target(name: str, value: Any) -> None:
    assert generate(**{name: value}).sent()[name] == value
    check_hint(generate(**{name: value}), name)


@pytest.mark.parametrize(
    ("config", "param"),
    [
        ({"thinkingConfig": {"thinkingBudget": 9}}, "generationConfig.thinkingConfig.thinkingBudget"),
        ({"thinkingConfig": {"thinkingLevel": "LOW"}}, "generationConfig.thinkingConfig.thinkingLevel"),
        ({"stopSequences": ["x"]}, "generationConfig.stopSequences"),
        ({"topK": 3}, "generationConfig.topK"),
        ({"responseMimeType": "application/json"}, "generationConfig.responseMimeType"),
    ],
)
def test_what_a_target_lacks_is_named_as_this_client_spells_it(config: dict[str, Any], param: str) -> None:
    check_spelled(generate(generationConfig=config), param)


@pytest.mark.parametrize("name", sorted({*TOP, *FORWARDED, "generationConfig"}))
def test_a_null_is_the_same_as_no_field(name: str) -> None:
    nothing: Any = {name: None}
    assert generate(**nothing).request == generate().request


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "parts": list(parts)}]


CALL = {"functionCall": {"name": "f", "args": {}}}
RESULT = {"functionResponse": {"name": "f", "response": {"output": "x"}}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"contents": None}, "contents"),
        ({"contents": []}, "contents"),
        ({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}, "contents[0].role"),
        ({"contents": user({})}, "contents[0].parts[0]"),
        ({"contents": user({"text": 5})}, "contents[0].parts[0].text"),
        ({"contents": user({"inlineData": {"data": "x"}})}, "contents[0].parts[0].inlineData.mimeType"),
        ({"contents": user({"fileData": {}})}, "contents[0].parts[0].fileData.fileUri"),
        ({"contents": user(CALL)}, "contents[0].parts"),
        ({"contents": user(RESULT)}, "contents[0].parts[0].functionResponse"),
        ({"contents": [{"role": "model", "parts": [{"functionCall": {}}]}]}, "contents[0].parts[0].functionCall.name"),
        (
            {"contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": "x"}}]}]},
            "contents[0].parts[0].functionCall.args",
        ),
        ({"contents": user({"text": "x"}), "systemInstruction": {"parts": [CALL]}}, "systemInstruction"),
        ({"generationConfig": {"temperature": 2.1}}, "generationConfig.temperature"),
        ({"generationConfig": {"topP": -0.1}}, "generationConfig.topP"),
        ({"generationConfig": {"maxOutputTokens": -1}}, "generationConfig.maxOutputTokens"),
        ({"generationConfig": {"candidateCount": 0}}, "generationConfig.candidateCount"),
        ({"generationConfig": {"stopSequences": [""]}}, "generationConfig.stopSequences[0]"),
        ({"generationConfig": {"responseJsonSchema": []}}, "generationConfig.responseJsonSchema"),
        (
            {"generationConfig": {"thinkingConfig": {"thinkingLevel": "SOME"}}},
            "generationConfig.thinkingConfig.thinkingLevel",
        ),
        ({"generationConfig": {"thinkingConfig": {"later": 1}}}, "generationConfig.thinkingConfig.later"),
        ({"tools": [{"functionDeclarations": [{}]}]}, "tools[0].functionDeclarations[0].name"),
        (
            {"tools": [{"functionDeclarations": [{"name": "f", "parameters": []}]}]},
            "tools[0].functionDeclarations[0].parameters",
        ),
        ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "toolConfig.functionCallingConfig"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "SOME"}}}, "toolConfig.functionCallingConfig.mode"),
        (
            {"toolConfig": {"functionCallingConfig": {"streamFunctionCallArguments": True}}},
            "toolConfig.functionCallingConfig.streamFunctionCallArguments",
        ),
        (
            {
                "tools": [{"functionDeclarations": [{"name": "f"}]}],
                "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["g"]}},
            },
            "toolConfig.functionCallingConfig.allowedFunctionNames",
        ),
    ],
)
def test_a_wrong_value_is_refused_by_its_path(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        generate(**fields)
    assert caught.value.status == 400
    assert caught.value.param == param


def test_a_request_to_count_may_be_whole_or_stand_inside() -> None:
    front = GenerateFront()
    body = {"contents": user({"text": "x"}), "tools": TOP["tools"], "systemInstruction": {"parts": [{"text": "s"}]}}
    wrapped = {"generateContentRequest": {"model": "models/other", **body}}
    for sent in (body, wrapped):
        request = front.parse_count(json.dumps(sent).encode(), max_depth=64)
        upstream = generate().generate_upstream
        assert json.loads(upstream.render_count(request, wrapped=False)) == body
        inside = json.loads(upstream.render_count(request, wrapped=True))
        assert inside == {"generateContentRequest": {"model": "models/", **body}}


@pytest.mark.parametrize("parts", [{}, {"parts": None}, {"parts": []}], ids=str)
def test_a_turn_of_the_user_without_parts_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        generate(contents=[{"role": "user", **parts}])
    assert caught.value.param == "contents[0].parts"


CHAT_LACKED = (
    "logit_bias", "verbosity", "metadata", "parallel_tool_calls", "user", "safety_identifier", "prompt_cache_key",
)  # fmt: skip


def test_chat_fields_that_gemini_lacks_are_not_declared() -> None:
    fields = GeminiProvider(settings()).capabilities("m").fields
    exchange = chat(
        logit_bias={"1": 1}, verbosity="low", metadata={"a": "b"}, parallel_tool_calls=False, user="u",
        safety_identifier="s", seed=1, n=2, logprobs=True, store=True, prompt_cache_key="k",
    )  # fmt: skip
    assert set(set_fields(exchange.request)) - fields == set(CHAT_LACKED)


@pytest.mark.parametrize(
    ("fields", "config"),
    [
        ({"max_completion_tokens": 7}, {"maxOutputTokens": 7}),
        ({"stop": "x"}, {"stopSequences": ["x"]}),
        ({"logprobs": True}, {"responseLogprobs": True}),
        ({"logprobs": True, "top_logprobs": 4}, {"responseLogprobs": True, "logprobs": 4}),
        ({"reasoning_effort": "low"}, {"thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True}}),
        ({"reasoning_effort": "max"}, {"thinkingConfig": {"thinkingLevel": "XHIGH", "includeThoughts": True}}),
        ({"reasoning_effort": "none"}, {"thinkingConfig": {"thinkingBudget": 0}}),
        (
            {"model": "gemini-2.5-flash", "reasoning_effort": "medium", "include_reasoning": False},
            {"thinkingConfig": {"thinkingBudget": 8192, "includeThoughts": False}},
        ),
        ({"thinking_token_budget": 100}, {"thinkingConfig": {"thinkingBudget": 100, "includeThoughts": True}}),
        ({"response_format": {"type": "json_object"}}, {"responseMimeType": "application/json"}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
            {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA},
        ),
        (
            {"guided_choice": ["yes", "no"]},
            {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["yes", "no"]}},
        ),
    ],
)
def test_chat_fields_become_geminis(fields: dict[str, Any], config: dict[str, Any]) -> None:
    sent = chat(**fields).sent()
    assert sent["generationConfig"] == config
    assert set(sent) == {"contents", "generationConfig"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"service_tier": "scale"}, "service_tier"),
        ({"response_format": {"type": "grammar", "grammar": "x"}}, "response_format"),
        ({"messages": [{"role": "critic", "content": "x"}]}, "messages"),
    ],
)
def test_what_gemini_cannot_do_is_refused_by_the_clients_name(fields: dict[str, Any], param: str) -> None:
    assert refused_param(chat(**fields)) == param
