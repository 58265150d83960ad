import json
from typing import Any

import pytest

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import EXPRESSIBLE_FIELDS, OutputFormat, Request, Tool
from gateway.routing.requirements import Fitted, fit
from gateway.routing.schema_limits import unenforced, without_unenforced
from providers.base import Capabilities

LACKS: dict[str, tuple[object, ...]] = {"minimum": (), "pattern": (), "minItems": (0, 1), "format": ("date",)}
SCHEMA = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "pattern": "a+", "format": "date"},
        "n": {"anyOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/l"}]},
        "k": {"const": {"minimum": 3}, "enum": [{"pattern": 1}]},
    },
    "$defs": {"l": {"type": "array", "minItems": 2, "items": {"type": "string", "format": "iri"}}},
}
PATHS = [
    "properties.pattern.pattern",
    "properties.n.anyOf[0].minimum",
    "$defs.l.minItems",
    "$defs.l.items.format",
]
TARGET = Capabilities(
    fields=EXPRESSIBLE_FIELDS,
    schema_lacks=LACKS,
    forwards=frozenset(("own",)),
    output_formats=frozenset(("json_schema",)),
)


def raw(schema: Any) -> bytes:
    return json.dumps(schema).encode()


def fitted(*, drop: bool = True, dialect: str = "openai.chat", **fields: Any) -> Fitted:
    request = Request(model="m", dialect=dialect, messages=(Message(role=USER, parts=(Text(text="hi"),)),), **fields)
    return fit(request, TARGET, lambda name: name, drop=drop, completions_as_chat=False)


def test_constraints_are_found_where_they_stand_and_not_in_names_or_values() -> None:
    assert unenforced(raw(SCHEMA), LACKS) == PATHS
    bare = without_unenforced(raw(SCHEMA), LACKS)
    assert unenforced(bare, LACKS) == []
    assert json.loads(bare)["properties"]["k"] == SCHEMA["properties"]["k"]  # type: ignore[index]
    assert json.loads(bare)["properties"]["pattern"] == {"type": "string", "format": "date"}


@pytest.mark.parametrize("schema", [{"minItems": 1, "format": "date"}, {}, True, {"properties": []}])
def test_a_schema_without_them_is_left_alone(schema: Any) -> None:
    assert unenforced(raw(schema), LACKS) == []


def test_a_constraint_that_a_target_does_not_enforce_is_refused_by_name() -> None:
    wanted = OutputFormat(kind="json_schema", schema=raw(SCHEMA))
    with pytest.raises(UnsupportedParameter, match=r"output_format\.schema\.properties\.pattern\.pattern") as caught:
        fitted(drop=False, output_format=wanted)
    assert caught.value.param == "output_format.schema.properties.pattern.pattern"


def test_or_it_is_dropped_and_listed() -> None:
    found = fitted(output_format=OutputFormat(kind="json_schema", schema=raw(SCHEMA)))
    assert found.dropped == tuple(f"output_format.schema.{path}" for path in PATHS)
    assert found.request.output_format is not None
    assert found.request.output_format.schema == without_unenforced(raw(SCHEMA), LACKS)


def test_only_a_strict_tool_asks_for_its_constraints() -> None:
    strict = Tool(kind="function", name="f", parameters=raw(SCHEMA), strict=True)
    loose = Tool(kind="function", name="g", parameters=raw(SCHEMA))
    found = fitted(tools=(loose, strict))
    assert found.dropped == tuple(f"tools[1].parameters.{path}" for path in PATHS)
    assert found.request.tools is not None
    assert found.request.tools[0] is loose


def test_a_client_of_the_targets_own_dialect_is_not_second_guessed() -> None:
    wanted = OutputFormat(kind="json_schema", schema=raw(SCHEMA))
    assert fitted(drop=False, dialect="own", output_format=wanted).request.output_format is wanted


def test_a_form_that_a_target_has_not_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedParameter, match="output_format"):
        fitted(drop=False, output_format=OutputFormat(kind="json_object"))
