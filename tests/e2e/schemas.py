"""Fifty JSON Schemas whose answers have an end: every text, list and object in them is bounded."""

from collections.abc import Mapping
from typing import Any

__all__ = ["SCHEMAS"]

Schema = dict[str, Any]


def text(length: int = 12, **more: Any) -> Schema:
    return {"type": "string", "maxLength": length, **more}


def whole(low: int = 0, high: int = 99) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def listed(items: Any, most: int = 3, **more: Any) -> Schema:
    return {"type": "array", "items": items, "maxItems": most, **more}


def fields(required: list[str] | None = None, /, **properties: Any) -> Schema:
    """An object with these properties and no others; all are required where it is not said which."""
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


POINT = fields(x=whole(), y=whole())
NODE = {"$defs": {"node": fields(["v"], v=whole(), next={"$ref": "#/$defs/leaf"}), "leaf": fields(v=whole())}}

SCHEMAS: Mapping[str, Schema] = {
    "one text": fields(a=text()),
    "one number": fields(a=whole()),
    "one boolean": fields(a={"type": "boolean"}),
    "one null": fields(a={"type": "null"}),
    "two fields": fields(name=text(), age=whole(0, 150)),
    "optional fields": fields(["a"], a=whole(), b=whole(), c=whole()),
    "no fields": fields(),
    "a nested object": fields(p=POINT),
    "three levels": fields(a=fields(b=fields(c=whole()))),
    "an enum": fields(color={"enum": ["red", "green", "blue"]}),
    "an enum of kinds": fields(v={"enum": [1, "a", None, True, 1.5]}),
    "a constant": fields(kind={"const": "point"}, v=whole()),
    "a list": fields(a=listed(whole())),
    "a list with a least length": fields(a=listed(whole(), minItems=2)),
    "a list of texts": fields(a=listed(text(6))),
    "a list of objects": fields(a=listed(POINT, 2)),
    "lists in lists": fields(a=listed(listed(whole(), 2), 2)),
    "a tuple": fields(a={"type": "array", "prefixItems": [whole(), text(5)], "items": False, "minItems": 2}),
    "an older tuple": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **listed(False, 2),
        "items": [whole(), {"type": "boolean"}],
        "additionalItems": False,
    },
    "a list at the root": listed(whole(), 4),
    "a text at the root": text(20),
    "a number at the root": whole(-10, 10),
    "an enum at the root": {"enum": ["yes", "no"]},
    "several types": fields(a={"type": ["integer", "null"], "minimum": 0, "maximum": 9}),
    "any of two": fields(a={"anyOf": [whole(), text(4)]}),
    "one of two": fields(a={"oneOf": [{"type": "boolean"}, whole()]}),
    "all of two": fields(a={"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 7}]}),
    "a union by kind": {
        "oneOf": [fields(kind={"const": "a"}, x=whole()), fields(kind={"const": "b"}, y={"type": "boolean"})]
    },
    "a reference": {"$defs": {"point": POINT}, **fields(p={"$ref": "#/$defs/point"})},
    "an older reference": {"definitions": {"point": POINT}, **fields(a={"$ref": "#/definitions/point"})},
    "references in references": {**NODE, **fields(head={"$ref": "#/$defs/node"})},
    "a pattern": fields(zip={"type": "string", "pattern": "^[0-9]{5}$"}),
    "a pattern with choices": fields(code={"type": "string", "pattern": "^(AB|CD)-[a-f]{2,3}$"}),
    "a length": fields(a={"type": "string", "minLength": 3, "maxLength": 5}),
    "a date": fields(day={"type": "string", "format": "date"}),
    "a time of a day": fields(at={"type": "string", "format": "date-time", "maxLength": 40}),
    "a uuid": fields(id={"type": "string", "format": "uuid"}),
    "an address": fields(ip={"type": "string", "format": "ipv4"}),
    "a range of fractions": fields(p={"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.01}),
    "an open range": fields(n={"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 5}),
    "a multiple": fields(n={"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 50}),
    "names by a pattern": {
        "type": "object",
        "patternProperties": {"^x_[a-c]$": whole()},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 2,
    },
    "values of one kind": {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 0},
    "names with other letters": fields(**{"größe": whole(), "名前": text(4), "a b": whole()}),
    "a name with quotes": fields(**{'say "hi"\n': whole()}),
    "values with other letters": fields(word={"enum": ["café", "naïve", "東京", "😀", 'q"\\']}),
    "a default that says nothing": fields(a={**whole(), "default": 3, "title": "A", "examples": [1], "$comment": "c"}),
    "a person": fields(
        ["name", "age", "kind", "address"],
        name=text(20),
        age=whole(0, 150),
        tags=listed(text(8), 2),
        kind={"enum": ["person", "company"]},
        address=fields(street=text(15), zip={"type": "string", "pattern": "^[0-9]{5}$"}),
    ),
    "an order": fields(
        id=whole(1, 9999),
        lines=listed(fields(sku={"type": "string", "pattern": "^[A-Z]{3}[0-9]{2}$"}, count=whole(1, 9)), 2, minItems=1),
        paid={"type": "boolean"},
        note={"anyOf": [text(10), {"type": "null"}]},
    ),
    "ten fields": fields(**{f"f{n}": {"type": "boolean"} for n in range(10)}),
}  # fmt: skip
