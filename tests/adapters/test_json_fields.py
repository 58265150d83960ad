"""The door of JSON: depth, Unicode, numbers, types, and where an error says it is."""

import json
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest
from adapters.json_fields import JsonObject, RawDecoder, decode_at, nesting_exceeds, parse_object

TEXT = Decoder(str)
INT = Decoder(int)


def parse(body: bytes) -> JsonObject:
    return parse_object(body, max_depth=64)


def refused(body: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse(body)
    assert caught.value.status == 400
    return caught.value


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    """An object that nests this deep, itself counted."""
    return b'{"a":' + opening * (depth - 1) + closing * (depth - 1) + b"}"


@pytest.mark.parametrize("depth", [2, 33, 63, 64])
def test_nesting_up_to_the_limit_is_taken(depth: int) -> None:
    for body in (nested(depth), b'{"a":' + b'{"b":' * (depth - 1) + b"1" + b"}" * depth):
        assert parse(body).names() == ["a"]


@pytest.mark.parametrize("depth", [65, 66, 1000, 100_000])
def test_nesting_beyond_the_limit_is_refused(depth: int) -> None:
    for body in (
        nested(depth),
        b'{"a":' + b"[" * (depth - 1),
        b'{"a":' + b'{"b":' * (depth - 1) + b"1" + b"}" * depth,
        b'{"a":' + b'["]",' * (depth - 1) + b"1" + b',"["]' * (depth - 1) + b"}",
    ):
        assert refused(body).code == "nesting_too_deep"


@pytest.mark.parametrize("template", [b"%b", b"[%b]", b'{"b":%b}', b'["x",[%b]]', b'[{"b":"]"},{"b":[%b]}]'])
@pytest.mark.parametrize("padding", [b"", b'"' + b"[" * 5000 + b'"'])
def test_a_long_body_nests_as_deep_as_a_short_one(template: bytes, padding: bytes) -> None:
    value = template % b'"{"'
    depth = 1 + depth_of(json.loads(value))
    body = b'{"a":[%b],"b":%b}' % (padding, value)
    assert parse_object(body, max_depth=max(depth, 2)).names() == ["a", "b"]
    with pytest.raises(InvalidRequest, match="nested too deep"):
        parse_object(body, max_depth=max(depth, 2) - 1)


def test_brackets_in_strings_do_not_nest() -> None:
    for text in (b"[" * 1000, b'\\"[' * 1000, b"{[\\\\" * 1000, b"[\\u005b" * 500):
        assert parse(b'{"a":"%b","b":[["x"]]}' % text).names() == ["a", "b"]


def test_many_brackets_side_by_side_do_not_nest() -> None:
    assert parse(b'{"a":[' + b",".join([b'[{"b":[]}]'] * 5000) + b"]}").names() == ["a"]


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 200_000, b"[" * 200_000, b'{"a":"' + b"[" * 200_000])
def test_a_broken_body_is_refused_in_linear_time(body: bytes) -> None:
    refused(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=30,
)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@settings(max_examples=300)
@given(JSON | JSON.map(lambda value: [value, '[{\\"', [value]]), st.integers(0, 6), st.booleans())
def test_depth_is_counted_as_a_parser_would(value: object, limit: int, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert nesting_exceeds(body, limit) is (depth_of(value) > limit)


@pytest.mark.parametrize("escape", [rb"\ud800", rb"\udfff", rb"\uD83D\u0041", rb"\ude00\ud83d", rb"\ud83d\ud83d\ude00"])
@pytest.mark.parametrize(
    ("template", "path"),
    [
        (b'{"a":"x%by"}', "a"),
        (b'{"a":{"b":[1,"%b"]}}', "a.b[1]"),
        (b'{"a":{"b":"%b","b":1}}', "a.b"),
        (b'{"%b":1}', "$"),
        (b'{"tools":[{"function":{"parameters":{"%b":1}}}]}', "tools[0].function.parameters"),
        (b'{"metadata":{"k":"%b"},"seed":' + b"9" * 5000 + b"}", "metadata.k"),
    ],
)
def test_a_lone_surrogate_anywhere_is_refused_with_its_path(template: bytes, path: str, escape: bytes) -> None:
    error = refused(template.replace(b"%b", escape))
    assert (error.param, error.code) == (path, "invalid_unicode")
    error.message.encode()


def test_paired_surrogates_are_one_character() -> None:
    assert parse(rb'{"a":"\ud83d\ude00"}').take("a", TEXT) == "😀"


def test_an_escaped_backslash_before_a_u_is_no_surrogate() -> None:
    assert parse(rb'{"a":"\\ud800"}').take("a", TEXT) == r"\ud800"


def test_bytes_that_are_not_utf8_are_refused() -> None:
    for bad in (b"\xff", b"\xed\xa0\x80", b"\xc3"):
        assert refused(b'{"a":"%b"}' % bad).code == "invalid_unicode"


@pytest.mark.parametrize("word", [b"NaN", b"Infinity", b"-Infinity"])
def test_a_number_word_is_refused_with_its_path(word: bytes) -> None:
    assert refused(b'{"a":{"b":[0,%b]}}' % word).param == "a.b[1]"
    assert refused(b'{"a":%b,"b":%b}' % (word, b"9" * 5000)).param == "a"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nul", b"[1]", b"1", b'"a"', b"null", b'{"a":1}}', b"{'a':1}", b'{"a":01}']
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    error = refused(body)
    assert error.code == "invalid_json"
    assert error.message.count("JSON") == 1


@pytest.mark.parametrize("value", [b"1.5", b"1.0", b"true", b"1e400", b'"1"', b"[1]", b"{}", b"9" * 5000 + b".5"])
def test_what_is_not_an_integer_is_refused_where_one_is_taken(value: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        JsonObject(parse(b'{"n":%b}' % value)._fields, "x[3]").take("n", INT)
    assert caught.value.param == "x[3].n"


def test_numbers_that_nobody_takes_keep_every_digit() -> None:
    number = b"9" * 5000
    assert parse(b'{"a":[1e400,%b]}' % number).rest() == {"a": b"[1e400,%b]" % number}


def test_the_path_inside_a_value_is_named() -> None:
    decoder = Decoder(list[dict[str, Annotated[int, Meta(ge=0)]]])
    with pytest.raises(InvalidRequest) as caught:
        parse(b'{"a":[{},{"b":-1}]}').take("a", decoder)
    assert caught.value.param == "a[1]"
    assert caught.value.message == "a[1]: expected integer >= 0"
    with pytest.raises(InvalidRequest) as caught:
        parse(b'{"a":{"x":1}}').take("a", Decoder(dict[int, int]))
    assert (caught.value.param, caught.value.message) == ("a", "a: expected integer, got string")
    with pytest.raises(InvalidRequest) as caught:
        decode_at(b"[1,true]", Decoder(list[int]), "p")
    assert caught.value.param == "p[1]"


@pytest.mark.parametrize(
    ("kind", "raw", "told"),
    [
        (str, b"1", "expected string, got integer"),
        (int, b'"x"', "expected integer, got string"),
        (float, b"[]", "expected number, got array"),
        (bool, b"{}", "expected boolean, got object"),
        (list[str], b"true", "expected array, got boolean"),
        (dict[str, int], b"1.5", "expected object, got number"),
        (str | list[str], b"7", "expected string or array, got integer"),
    ],
)
def test_a_wrong_type_is_told_in_the_words_of_json(kind: Any, raw: bytes, told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(b'{"a":%b}' % raw).take("a", Decoder(kind))
    assert caught.value.message == f"a: {told}"


def test_a_body_of_another_kind_is_told_in_the_words_of_json() -> None:
    assert refused(b"[1]").message == "the body must be a JSON object: expected object, got array"
    for body in (b"", b" \n"):
        assert refused(body).message == "the body is empty; expected a JSON object"


def test_an_unknown_field_is_told_with_the_one_that_it_may_have_meant() -> None:
    body = parse(b'{"includ_usage":true}')
    assert body.take("include_usage", Decoder(bool)) is None
    with pytest.raises(InvalidRequest) as caught:
        body.refuse_rest()
    assert caught.value.message == "includ_usage: unknown field, did you mean 'include_usage'?"
    with pytest.raises(InvalidRequest) as caught:
        parse(b'{"zzz":true}').refuse_rest()
    assert caught.value.message == "zzz: unknown field"


def test_null_and_absent_are_the_same() -> None:
    body = parse(b'{"a":null,"b":null,"c":null,"d":null}')
    assert body.take("a", TEXT) is None
    assert body.take("b", RawDecoder("object")) is None
    assert body.take_raw("c") is None
    assert body.take_object("d") is None
    assert body.take_objects("nothing") is None
    assert body.take("nothing", TEXT) is None
    with pytest.raises(InvalidRequest, match="a: this field is required"):
        parse(b'{"a":null}').require("a", TEXT)


def test_of_a_name_that_stands_twice_the_last_counts() -> None:
    assert parse(b'{"a":1,"a":2}').take("a", INT) == 2
    assert parse(b'{"a":{"b":1,"b":2}}').rest() == {"a": b'{"b":1,"b":2}'}


@pytest.mark.parametrize(("kind", "good", "bad"), [("object", b'{ "b":1e400 }', b"[]"), ("array", b"[ 1 ]", b"{}")])
def test_raw_values_pass_as_they_came_when_their_kind_fits(kind: str, good: bytes, bad: bytes) -> None:
    decoder = RawDecoder("object" if kind == "object" else "array")
    assert parse(b'{"a": %b }' % good).take("a", decoder) == good
    for wrong in (bad, b'"x"', b"1", b"true"):
        with pytest.raises(InvalidRequest, match=f"a: expected {kind}"):
            parse(b'{"a":%b}' % wrong).take("a", decoder)


def test_objects_in_lists_know_their_place() -> None:
    rows = parse(b'{"m":[{},{"x":{"y":"z"}}]}').take_objects("m")
    assert rows is not None
    inner = rows[1].take_object("x")
    assert inner is not None
    assert inner.at("y") == "m[1].x.y"
    assert rows[1].names() == []
    assert "y" in inner
    assert inner.peek_raw("y") == b'"z"'
    with pytest.raises(InvalidRequest) as caught:
        inner.refuse_rest()
    assert caught.value.param == "m[1].x.y"
