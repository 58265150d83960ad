"""The short way for whole chat bodies gives what the general way gives."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.errors import InvalidRequest
from adapters.openai.chat.parse import parse_chat, parse_chat_fields
from adapters.openai.chat.plain import DEPTH, plain_chat

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi \u00e9"}]},
]
BODY = {"model": "m", "messages": MESSAGES}
FIELDS = {
    "stream": st.booleans(),
    "max_tokens": st.integers(1, 2**31 - 1),
    "max_completion_tokens": st.integers(1, 2**31 - 1),
    "temperature": st.floats(0, 2) | st.integers(0, 2),
    "top_p": st.floats(0, 1),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "user": st.text(max_size=512),
}
TEXTS = st.text(max_size=4)
NAMES = st.text(min_size=1, max_size=4)
CONTENT = TEXTS | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), min_size=1, max_size=2)
CALL = st.fixed_dictionaries(
    {
        "id": NAMES,
        "type": st.just("function"),
        "function": st.fixed_dictionaries({"name": NAMES, "arguments": TEXTS}),
    }
)
SAID = (
    st.fixed_dictionaries({"role": st.sampled_from(["system", "developer", "user"]), "content": CONTENT})
    | st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": NAMES, "content": CONTENT})
    | st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": CONTENT | st.none()},
        optional={
            "tool_calls": st.lists(CALL, max_size=2) | st.none(),
            "refusal": st.none(),
            "annotations": st.just([]),
        },
    )
)
ODD: st.SearchStrategy[object] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS, st.just([]), st.just({}), st.just([{}])
)
PLACES = ["stream", "stream_options", "max_tokens", "seed", "user", "messages", "stop", "role", "content", "tool_calls"]
PLACES += ["tool_call_id", "name", "refusal", "annotations", "audio", "type", "text"]


@given(
    st.fixed_dictionaries(
        {"model": NAMES, "messages": st.lists(SAID, min_size=1, max_size=3)},
        optional={name: one | st.none() for name, one in FIELDS.items()},
    ),
    st.none() | st.tuples(st.sampled_from(["body", "message", "part"]), st.sampled_from(PLACES), ODD),
)
def test_whatever_the_short_way_takes_it_takes_as_the_general_way_does(
    body: dict[str, Any], change: tuple[str, str, object] | None
) -> None:
    if change is not None:
        where, name, value = change
        first = body["messages"][0]
        part = first["content"][0] if isinstance(first["content"], list) else {}
        {"body": body, "message": first, "part": part}[where][name] = value
    raw = json.dumps(body).encode()
    found = plain_chat(raw)
    assert found is None or found == parse_chat_fields(raw, max_depth=64)
    assert found is not None or change is not None


@pytest.mark.parametrize(
    "options", [{}, {"include_usage": True}, {"include_usage": False}, {"include_usage": None}, None]
)
def test_options_of_a_stream_are_the_same_either_way(options: object) -> None:
    raw = orjson.dumps({**BODY, "stream": True, "stream_options": options})
    assert plain_chat(raw) == parse_chat_fields(raw, max_depth=64)


@pytest.mark.parametrize(
    "more",
    [
        {"tools": []},
        {"stop": "x"},
        {"unknown": 1},
        {"temperature": 3},
        {"max_tokens": 0},
        {"model": ""},
        {"model": 1},
        {"messages": []},
        {"messages": [{"role": "user", "content": "Hi", "name": "ann"}]},
        {"stream_options": {"include_usage": True}},
        {"stream": True, "stream_options": {"include_obfuscation": True}},
    ],
)
def test_anything_else_goes_the_general_way(more: dict[str, object]) -> None:
    assert plain_chat(orjson.dumps({**BODY, **more})) is None


@pytest.mark.parametrize("text", [b"\\ud800", b"\xff", b"\xed\xa0\x80"])
def test_text_that_is_no_unicode_is_refused_as_in_any_body(text: bytes) -> None:
    raw = orjson.dumps(BODY).replace(b"Be brief.", text)
    assert plain_chat(raw) is None
    with pytest.raises(InvalidRequest) as told:
        parse_chat(raw, max_depth=64)
    assert told.value.code == "invalid_unicode"


def test_the_limit_of_depth_holds_for_plain_bodies() -> None:
    raw = orjson.dumps(BODY)
    assert parse_chat(raw, max_depth=DEPTH) == plain_chat(raw)
    with pytest.raises(InvalidRequest):
        parse_chat(raw, max_depth=DEPTH - 1)


def test_of_a_field_that_comes_twice_the_last_one_counts_either_way() -> None:
    raw = orjson.dumps(BODY)[:-1] + b',"seed":1,"seed":2,"model":"other"}'
    found = plain_chat(raw)
    assert found == parse_chat_fields(raw, max_depth=64)
    assert found is not None
    assert (found.model, found.sampling.seed) == ("other", 2)
