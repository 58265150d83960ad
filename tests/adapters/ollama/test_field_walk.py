"""Law 8: every field of Ollama's requests is mapped, forwarded or refused by name, and chat's towards Ollama too.

The names come from the ollama SDK's own types, so that a new field fails here until it is decided.
"""

import json
from typing import Any

import pytest
from ollama import _types as types

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import set_fields
from adapters.ollama.embeddings import EmbeddingsFront, EmbedFront, render_embeddings
from providers.remote.ollama import OllamaProvider
from tests.adapters.field_rules import check_hint, check_of_one_dialect, check_spelled, refused_param
from tests.adapters.ollama.exchange import chat, completion, generate, ollama
from tests.providers.remote.calls import settings

PNG = "iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "z": 1}
OPTIONS: dict[str, Any] = {
    "num_predict": 5,
    "temperature": 0.5,
    "top_k": 40,
    "top_p": 0.25,
    "typical_p": 0.75,
    "repeat_penalty": 1.5,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repeat_last_n": 64,
    "seed": 7,
    "stop": ["a", "b"],
    "min_p": 0.125,  # of the server alone
}
OWN_OPTIONS: dict[str, Any] = {
    "numa": True,
    "num_ctx": 16384,
    "num_batch": 512,
    "num_gpu": 1,
    "main_gpu": 0,
    "low_vram": False,
    "f16_kv": True,
    "logits_all": True,
    "vocab_only": True,
    "use_mmap": True,
    "use_mlock": False,
    "embedding_only": True,
    "num_thread": 4,
    "num_keep": 5,
    "tfs_z": 0.5,
    "mirostat": 2,
    "mirostat_tau": 5.5,
    "mirostat_eta": 0.25,
    "penalize_newline": False,
}
HINTS = {
    "numa", "num_ctx", "num_batch", "num_gpu", "main_gpu", "low_vram", "f16_kv", "use_mmap", "use_mlock", "num_thread",
    "num_keep", "mirostat_tau", "mirostat_eta",
}  # fmt: skip
"""Options that say how the server keeps and runs a model, or more of mirostat, and nothing about the answer."""
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
CHAT: dict[str, Any] = {
    "model": "some/model:8b",
    "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a", "images": [PNG]}],
    "stream": False,
    "tools": [TOOL, {"type": "function", "function": {"name": "g", "parameters": {}, "later": 1}}],
    "think": True,
    "format": SCHEMA,
    "logprobs": True,
}
GENERATE: dict[str, Any] = {
    "prompt": "once",
    "suffix": "end",
    "system": "s",
    "images": [PNG],
    "raw": True,
}
FORWARDED: dict[str, Any] = {"keep_alive": 300, "truncate": True, "shift": False}
OF_GENERATE: dict[str, Any] = {
    "template": "{{ .Prompt }}",
    "context": [1, 2, 3],
    "width": 64,
    "height": 64,
    "steps": 4,
}
WITH_OTHERS = {"options", "top_logprobs"}
NO_DURATIONS: tuple[Any, ...] = ("5", "-1", "5 m", "m", "1d", True, [], 10**400)


def test_every_field_of_the_sdk_is_decided() -> None:
    assert set(types.ChatRequest.model_fields) <= {*CHAT, *FORWARDED} | WITH_OTHERS
    found = set(types.GenerateRequest.model_fields)
    assert found <= {*CHAT, *GENERATE, *FORWARDED, *OF_GENERATE} | WITH_OTHERS
    assert set(types.Options.model_fields) | {"min_p"} == {*OPTIONS, *OWN_OPTIONS}
    assert set(types.EmbedRequest.model_fields) == {
        "model", "input", "truncate", "options", "keep_alive", "dimensions",
    }  # fmt: skip
    message = {"role", "content", "thinking", "images", "tool_name", "tool_calls"}
    assert set(types.Message.model_fields) == message


@pytest.mark.parametrize(("name", "value"), (CHAT | FORWARDED).items())
def test_a_field_of_a_chat_reaches_ollama_as_it_came(name: str, value: Any) -> None:
    sent = ollama(**{name: value}).sent()
    assert json.dumps(sent.pop(name)) == json.dumps(value)
    assert set(sent) <= {"model", "messages", "stream"}


@pytest.mark.parametrize(("name", "value"), (GENERATE | FORWARDED | OF_GENERATE).items())
def test_a_field_of_a_generation_reaches_ollama_as_it_came(name: str, value: Any) -> None:
    exchange = generate(**{name: value})
    assert exchange.path() == "/api/generate"
    sent = exchange.sent()
    assert json.dumps(sent.pop(name)) == json.dumps(value)
    assert set(sent) <= {"model", "prompt", "stream"}


@pytest.mark.parametrize(("name", "value"), (OPTIONS | OWN_OPTIONS).items())
def test_an_option_reaches_ollama_as_it_came(name: str, value: Any) -> None:
    for exchange in (ollama(options={name: value}), generate(options={name: value})):
        assert json.dumps(exchange.sent()["options"]) == json.dumps({name: value})


def test_alternatives_of_logprobs_reach_ollama() -> None:
    sent = ollama(logprobs=True, top_logprobs=4).sent()
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 4)
    assert ollama(top_logprobs=4).request.logprobs is None


@pytest.mark.parametrize(
    ("said", "seconds", "sent"),
    [
        ("5m", 300, 300),
        ("1h30m", 5400, 5400),
        ("1.5s", 1.5, "1.500000s"),
        ("500ms", 0.5, "0.500000s"),
        (".5h", 1800, 1800),
        (0, 0, 0),
        ("0", 0, 0),
        ("0s", 0, 0),
        (2.5, 2.5, "2.500000s"),
        (-1, -1, -1),
        ("-1m", -1, -1),
        ("9999999h", -1, -1),
        ("", None, None),
    ],
)
def test_how_long_a_model_stays_is_seconds_or_a_duration(said: Any, seconds: float | None, sent: Any) -> None:
    exchange = ollama(keep_alive=said)
    assert exchange.request.keep_alive_s == seconds
    assert exchange.sent().get("keep_alive") == sent


@pytest.mark.parametrize("think", [True, False, "low", "medium", "high", "max"])
def test_every_form_of_thinking_reaches_ollama(think: Any) -> None:
    assert ollama(think=think).sent()["think"] == think


def test_a_stream_is_the_default_and_is_always_said() -> None:
    assert ollama().request.stream
    assert ollama().sent()["stream"] is True
    assert chat().sent()["stream"] is False


@pytest.mark.parametrize(("limit", "option"), [(-1, None), (0, {"num_predict": 0}), (-2, {"num_predict": -2})])
def test_limits_that_are_none(limit: int, option: dict[str, int] | None) -> None:
    assert ollama(options={"num_predict": limit}).sent().get("options") == option


def test_an_answer_may_fill_the_window_whatever_the_limit() -> None:
    assert ollama(options={"num_predict": 10**6}).request.open_ended
    assert generate(raw=True).request.open_ended
    assert not chat().request.open_ended


@pytest.mark.parametrize("name", ["num_predict", "top_k", "seed"])
def test_a_whole_number_may_be_written_as_a_float(name: str) -> None:
    whole, other = ollama(options={name: 7}), ollama(options={name: 7.0})
    assert other.request == whole.request
    for value in (7.5, "7", 7e30):
        with pytest.raises(InvalidRequest) as caught:
            ollama(options={name: value})
        assert caught.value.param == f"options.{name}"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"truncate": True}, "truncate"),
        ({"shift": True}, "shift"),
        ({"options": {"mirostat": 10**400}}, "options.mirostat"),
        *[({"options": {name: OWN_OPTIONS[name]}}, f"options.{name}") for name in sorted(OWN_OPTIONS.keys() - HINTS)],
        ({"messages": [{"role": "user", "content": "x", "later": 1}]}, "messages[0].later"),
        ({"tools": [CHAT["tools"][1]]}, "tools[0].function.later"),
    ],
)
def test_a_field_that_only_ollama_knows_is_refused_by_name_elsewhere(fields: dict[str, Any], name: str) -> None:
    check_of_one_dialect(ollama(**fields), name)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"keep_alive": 300}, "keep_alive"),
        ({"keep_alive": -1}, "keep_alive"),
        ({"truncate": False}, "truncate"),
        ({"shift": False}, "shift"),
        ({"options": {"num_ctx": 2**40}}, "options.num_ctx"),  # beyond the window of any model
        ({"options": {"mirostat": 0}}, "options.mirostat"),
        ({"options": {"tfs_z": 1.0}}, "options.tfs_z"),
        ({"options": {"num_predict": -2}}, "options.num_predict"),
        ({"options": {"penalize_newline": True}}, "options.penalize_newline"),
        ({"options": {"logits_all": False}}, "options.logits_all"),
        *[({"options": {name: OWN_OPTIONS[name]}}, f"options.{name}") for name in sorted(HINTS)],
    ],
)
def test_a_hint_reaches_ollama_as_it_came_and_stops_no_other_target(fields: dict[str, Any], name: str) -> None:
    sent = ollama(**fields).sent()
    assert {field: sent[field] for field in fields} == fields
    check_hint(ollama(**fields), name)


def test_a_tool_that_is_said_not_to_be_strict_stops_no_target() -> None:
    def tools(strict: bool) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": strict}}]

    assert ollama(tools=tools(False)).sent()["tools"] == tools(False)
    check_hint(ollama(tools=tools(False)), "tools[0].function.strict")
    check_of_one_dialect(ollama(tools=tools(True)), "tools[0].function.strict")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"think": "high"}, "think"),
        ({"options": {"top_k": 3}}, "options.top_k"),
        ({"options": {"repeat_penalty": 1.5}}, "options.repeat_penalty"),
        ({"options": {"stop": ["x"]}}, "options.stop"),
        ({"format": "json"}, "format"),
        ({"logprobs": True}, "logprobs"),
    ],
)
def test_what_a_target_lacks_is_named_as_this_client_spells_it(fields: dict[str, Any], param: str) -> None:
    check_spelled(ollama(**fields), param)


@pytest.mark.parametrize("name", sorted({*CHAT, *FORWARDED, "options", "top_logprobs"} - {"model", "messages"}))
def test_a_null_is_the_same_as_no_field(name: str) -> None:
    nothing: Any = {name: None}
    assert ollama(**nothing).request == ollama().request


@pytest.mark.parametrize("name", ["suffix", "system", "template", "raw", "images", "format", "context"])
def test_what_the_sdk_sends_for_nothing_asks_for_nothing(name: str) -> None:
    empty: dict[str, Any] = {"raw": False, "images": [], "context": []}
    nothing: Any = {name: empty.get(name, "")}
    assert generate(**nothing).request == generate().request


def test_a_prompt_is_what_a_user_says_unless_no_template_is_to_touch_it() -> None:
    said = generate(system="s", images=[PNG]).request
    assert said.messages is not None
    assert [message.role for message in said.messages] == ["system", "user"]
    for fields in ({"raw": True}, {"suffix": "end"}, {"raw": True, "suffix": "end"}):
        asked = generate(**fields).request
        assert (asked.messages, asked.prompts) == (None, ("hi",))
        sent = generate(**fields).sent()
        assert {name: sent.get(name) for name in ("raw", "suffix") if name in sent} == fields


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "critic", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "images": ["not base64!"]}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"options": {"temperature": 101}}, "options.temperature"),
        ({"options": {"top_p": "x"}}, "options.top_p"),
        ({"options": {"num_predict": -3}}, "options.num_predict"),
        ({"options": {"stop": [""]}}, "options.stop"),
        ({"options": []}, "options"),
        ({"format": "xml"}, "format"),
        ({"think": "much"}, "think"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"stream": "yes"}, "stream"),
        ({"top_logprobs": 21}, "top_logprobs"),
        *[({"keep_alive": value}, "keep_alive") for value in NO_DURATIONS],
    ],
)
def test_a_wrong_value_is_refused_by_its_path(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ollama(**fields)
    assert caught.value.status == 400
    assert caught.value.param == param


def test_a_generation_needs_a_prompt() -> None:
    with pytest.raises(InvalidRequest) as caught:
        generate(prompt="")
    assert caught.value.param == "prompt"


CHAT_LACKED = (
    "logit_bias", "verbosity", "metadata", "parallel_tool_calls", "user", "safety_identifier", "store",
    "reasoning.include", "prompt_cache_key",
)  # fmt: skip


def test_chat_fields_that_ollama_lacks_are_not_declared() -> None:
    fields = OllamaProvider(settings()).capabilities("m").fields
    exchange = chat(
        logit_bias={"1": 1}, verbosity="low", metadata={"a": "b"}, parallel_tool_calls=False, user="u", store=True,
        safety_identifier="s", include_reasoning=False, seed=1, n=2, logprobs=True, prompt_cache_key="k", min_p=0.5,
    )  # fmt: skip
    assert set(set_fields(exchange.request)) - fields == set(CHAT_LACKED)


@pytest.mark.parametrize(
    ("fields", "outgoing"),
    [
        ({"max_completion_tokens": 7}, {"options": {"num_predict": 7}}),
        ({"stop": "x"}, {"options": {"stop": ["x"]}}),
        ({"reasoning_effort": "minimal"}, {"think": "low"}),
        ({"reasoning_effort": "xhigh"}, {"think": "max"}),
        ({"reasoning_effort": "none"}, {"think": False}),
        ({"response_format": {"type": "json_object"}}, {"format": "json"}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
            {"format": SCHEMA},
        ),
    ],
)
def test_chat_fields_become_ollamas(fields: dict[str, Any], outgoing: dict[str, Any]) -> None:
    sent = chat(**fields).sent()
    assert {name: sent[name] for name in outgoing} == outgoing
    assert set(sent) == {"model", "messages", "stream", "truncate", "shift", *outgoing}


def test_too_long_a_prompt_of_another_dialect_is_an_error_and_never_cut_in_silence() -> None:
    for exchange in (chat(), completion()):
        sent = exchange.sent()
        assert (sent["truncate"], sent["shift"]) == (False, False)
    assert not {"truncate", "shift"} & set(ollama().sent())


def test_completions_touch_no_template() -> None:
    assert completion().sent()["raw"] is True
    filled = completion(suffix="end")
    assert filled.path() == "/api/generate"
    assert {name: filled.sent().get(name) for name in ("prompt", "suffix", "raw")} == {
        "prompt": "hi",
        "suffix": "end",
        "raw": None,
    }


CHAT_TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("auto", ["f", "g"]),
        ("none", None),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]},
            },
            ["g"],
        ),
    ],
)
def test_a_tool_choice_is_which_tools_are_sent(choice: Any, names: list[str] | None) -> None:
    other = {"type": "function", "function": {"name": "g"}}
    sent = chat(tools=[CHAT_TOOL, other], tool_choice=choice).sent()
    assert (None if names is None else [tool["function"]["name"] for tool in sent["tools"]]) == names
    assert ("tools" in sent) == (names is not None)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [CHAT_TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [CHAT_TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"response_format": {"type": "grammar", "grammar": "x"}}, "response_format"),
        ({"messages": [{"role": "critic", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "x"}]}]}, "messages"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.example/b"}}]}
                ]
            },
            "messages",
        ),
    ],
)
def test_what_ollama_cannot_do_is_refused_by_the_clients_name(fields: dict[str, Any], param: str) -> None:
    assert refused_param(chat(**fields)) == param


def test_a_tools_schema_is_sent_as_it_came() -> None:
    schema = b'{"type": "object", "z": 1.50, "a": 12345678901234567890123}'
    body = (
        b'{"model":"m","messages":[{"role":"user","content":"x"}],'
        b'"tools":[{"type":"function","function":{"name":"f","parameters":%b}}]}'
    )
    for exchange in (chat(), ollama()):
        request = exchange.front.parse(body % schema, max_depth=64)
        assert b'"parameters":' + schema in exchange.upstream.render_request(request)


def test_every_field_of_an_embedding_reaches_ollama() -> None:
    body = {"model": "m", "input": ["a", "b"], "truncate": True, "dimensions": 64, "keep_alive": 5, "options": {"x": 1}}
    asked = EmbedFront().parse(json.dumps(body).encode(), max_depth=64, request_id="r")
    assert json.loads(render_embeddings(asked)) == body
    one = EmbeddingsFront().parse(b'{"model":"m","prompt":"a"}', max_depth=64, request_id="r")
    assert json.loads(render_embeddings(one)) == {"model": "m", "input": ["a"]}  # the server decides
    for nothing in (b"", b',"input":""', b',"input":[]', b',"input":null'):
        assert EmbedFront().parse(b'{"model":"m"%b}' % nothing, max_depth=64, request_id="r").inputs == ()
    assert EmbeddingsFront().parse(b'{"model":"m","prompt":""}', max_depth=64, request_id="r").inputs == ()
    whole = EmbedFront().parse(b'{"model":"m","input":"a","truncate":false}', max_depth=64, request_id="r")
    assert json.loads(render_embeddings(whole)) == {"model": "m", "input": ["a"], "truncate": False}
