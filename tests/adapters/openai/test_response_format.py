"""Every server's name for a constraint on the answer means the same, and goes back to its own servers as it came."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.request import OutputFormat, Request
from adapters.front import Front
from adapters.openai.chat.front import ChatFront
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.completions.front import CompletionsFront
from adapters.openai.completions.upstream import CompletionsUpstream
from adapters.openai.responses.upstream import ResponsesUpstream
from adapters.openai.vocabulary import CHAT, COMPLETIONS, RESPONSES
from adapters.upstream import Upstream
from tests.adapters.openai.responses.exchange import front_of

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TAG = {"type": "structural_tag", "structures": [], "triggers": ["<f>"]}
SURFACES = [CHAT, COMPLETIONS, RESPONSES]
FRONTS: Mapping[str, Callable[[], Front]] = {CHAT: ChatFront, COMPLETIONS: CompletionsFront, RESPONSES: front_of}
UPSTREAMS: Mapping[str, Callable[[], Upstream]] = {
    CHAT: ChatUpstream,
    COMPLETIONS: CompletionsUpstream,
    RESPONSES: lambda: ResponsesUpstream("up"),
}
ALIASES: list[tuple[str, Any, str, Any]] = [
    # The field, its value, the kind that it is, and the expression.
    ("structured_outputs", {"json": SCHEMA}, "json_schema", SCHEMA),
    ("structured_outputs", {"json": json.dumps(SCHEMA)}, "json_schema", SCHEMA),
    ("structured_outputs", {"regex": "a+", "disable_fallback": True}, "regex", "a+"),
    ("structured_outputs", {"choice": ["a", "b"]}, "choice", ("a", "b")),
    ("structured_outputs", {"grammar": 'root ::= "a"'}, "grammar", 'root ::= "a"'),
    ("structured_outputs", {"json_object": True, "json": None}, "json_object", None),
    ("structured_outputs", {"structural_tag": json.dumps(TAG)}, "structural_tag", TAG),
    ("guided_json", SCHEMA, "json_schema", SCHEMA),
    ("guided_json", json.dumps(SCHEMA), "json_schema", SCHEMA),
    ("guided_regex", "a+", "regex", "a+"),
    ("guided_choice", ["a", "b"], "choice", ("a", "b")),
    ("guided_grammar", "start: x", "grammar", "start: x"),
    ("json_schema", SCHEMA, "json_schema", SCHEMA),
    ("json_schema", json.dumps(SCHEMA), "json_schema", SCHEMA),
    ("regex", "a+", "regex", "a+"),
    ("ebnf", 'root ::= "a"', "grammar", 'root ::= "a"'),
    ("grammar", 'root ::= "a"', "grammar", 'root ::= "a"'),
]
TYPES: list[tuple[dict[str, Any], str, Any, str]] = [
    # A response_format, the kind that it is, the expression, and where that stands.
    ({"type": "json_object"}, "json_object", None, "response_format"),
    ({"type": "json", "schema": SCHEMA}, "json_schema", SCHEMA, "response_format.schema"),
    ({"type": "json_object", "schema": SCHEMA}, "json_schema", SCHEMA, "response_format.schema"),
    ({"type": "regex", "regex": "a+"}, "regex", "a+", "response_format.regex"),
    ({"type": "regex", "pattern": "a+"}, "regex", "a+", "response_format.pattern"),
    ({"type": "ebnf", "ebnf": "root ::= x"}, "grammar", "root ::= x", "response_format.ebnf"),
    (TAG, "structural_tag", TAG, "response_format"),
    (
        {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        "json_schema",
        SCHEMA,
        "response_format.json_schema.schema",
    ),
]


def parse(surface: str, **fields: Any) -> Request:
    own: dict[str, dict[str, Any]] = {
        CHAT: {"messages": [{"role": "user", "content": "x"}]},
        COMPLETIONS: {"prompt": "x"},
        RESPONSES: {"input": "x"},
    }
    front = FRONTS[surface]()
    return front.parse(json.dumps({"model": "m", **own[surface], **fields}).encode(), max_depth=64)


def sent(request: Request, surface: str) -> dict[str, Any]:
    upstream = UPSTREAMS[surface]()
    found: dict[str, Any] = json.loads(upstream.render_request(request))
    return found


def expression(wanted: OutputFormat) -> Any:
    if wanted.schema is not None:
        return json.loads(wanted.schema)
    return wanted.text if wanted.text is not None else wanted.choices


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize(("field", "value", "kind", "meant"), ALIASES)
def test_every_name_is_understood_and_forwarded_as_it_came(
    surface: str, field: str, value: Any, kind: str, meant: Any
) -> None:
    request = parse(surface, **{field: value})
    assert request.output_format is not None
    assert (request.output_format.kind, expression(request.output_format)) == (kind, meant)
    assert (request.output_format.path or "").startswith(field)
    assert request.extras == {}
    body = sent(request, surface)
    assert body[field] == value
    assert "response_format" not in body
    assert "text" not in body


@pytest.mark.parametrize("surface", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(("value", "kind", "meant", "path"), TYPES)
def test_every_type_of_format_is_understood_and_forwarded_as_it_came(
    surface: str, value: dict[str, Any], kind: str, meant: Any, path: str
) -> None:
    request = parse(surface, response_format=value)
    wanted = request.output_format
    assert wanted is not None
    assert (wanted.kind, expression(wanted), wanted.path) == (kind, meant, path)
    assert sent(request, surface)["response_format"] == value


def test_types_that_nobody_here_knows_are_forwarded_too() -> None:
    value = {"type": "brand_new", "x": 1}
    assert sent(parse(CHAT, response_format=value), CHAT)["response_format"] == value


def test_a_flat_format_says_where_its_schema_stands() -> None:
    request = parse(RESPONSES, text={"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}})
    assert request.output_format is not None
    assert request.output_format.path == "text.format.schema"


def test_the_mirrored_text_of_a_response_does_not_speak_of_other_names() -> None:
    assert json.loads(parse(RESPONSES, guided_regex="a+").mirrored["text"]) == {"format": {"type": "text"}}


@pytest.mark.parametrize(
    ("fields", "named", "other"),
    [
        ({"guided_regex": "a", "guided_json": SCHEMA}, "guided_regex", "guided_json"),
        ({"response_format": {"type": "json_object"}, "grammar": "root ::= x"}, "grammar", "response_format"),
        ({"structured_outputs": {"regex": "a"}, "regex": "a"}, "regex", "structured_outputs"),
    ],
)
def test_two_constraints_are_a_conflict(fields: dict[str, Any], named: str, other: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"{named}: not allowed together with {other}") as caught:
        parse(CHAT, **fields)
    assert caught.value.param == named


def test_a_field_that_asks_for_nothing_is_no_conflict() -> None:
    request = parse(CHAT, response_format={"type": "text"}, guided_json=None, grammar="", regex="a")
    assert request.output_format is not None
    assert request.output_format.field == "regex"
    assert parse(CHAT, grammar="", guided_regex=None).output_format is None


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[]"}, "guided_json"),
        ({"guided_json": "[" * 200 + "]" * 200}, "guided_json"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": ["a", ""]}, "guided_choice[1]"),
        ({"guided_choice": "a"}, "guided_choice"),
        ({"response_format": {"type": "regex"}}, "response_format.regex"),
    ],
)
def test_what_is_no_constraint_is_refused_with_its_place(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(CHAT, **fields)
    assert caught.value.param == path


def test_options_of_the_spacing_are_understood() -> None:
    tight = parse(CHAT, structured_outputs={"json": SCHEMA, "disable_any_whitespace": True}).output_format
    spaced = parse(CHAT, structured_outputs={"json": SCHEMA, "whitespace_pattern": " *"}).output_format
    other = parse(CHAT, structured_outputs={"json": SCHEMA, "disable_additional_properties": True}).output_format
    assert tight is not None
    assert spaced is not None
    assert other is not None
    assert (tight.whitespace, spaced.whitespace, other.whitespace) == ("", " *", None)
    assert (tight.unmapped, other.unmapped) == ((), ("disable_additional_properties",))


def test_another_dialect_gets_what_it_can_say_and_refuses_the_rest_by_the_clients_name() -> None:
    assert sent(parse(CHAT, guided_json=SCHEMA), RESPONSES)["text"]["format"]["schema"] == SCHEMA
    assert sent(parse(RESPONSES, guided_json=SCHEMA), CHAT)["response_format"]["json_schema"]["schema"] == SCHEMA
    for fields, param in (
        ({"guided_regex": "a"}, "guided_regex"),
        ({"structured_outputs": {"json": SCHEMA, "whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern"),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_additional_properties": True}},
            "structured_outputs.disable_additional_properties",
        ),
    ):
        with pytest.raises(UnsupportedParameter) as caught:
            sent(parse(CHAT, **fields), RESPONSES)
        assert caught.value.param == param
