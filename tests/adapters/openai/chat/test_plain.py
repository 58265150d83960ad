"""The short way for whole chat bodies gives what the general way gives."""

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


@given(st.fixed_dictionaries({}, optional={name: one | st.none() for name, one in FIELDS.items()}))
def test_a_plain_body_is_the_same_either_way(fields: dict[str, object]) -> None:
    raw = orjson.dumps({**BODY, **fields})
    assert plain_chat(raw) == parse_chat_fields(raw, max_depth=64)


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
