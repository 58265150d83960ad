"""pydantic's errors -> what was expected, in our words. Knows no file: messages name no line and no value."""

from collections.abc import Iterator

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from gateway.config.faults import Location
from gateway.config.foreign_words import meant_key
from gateway.config.sections.models import TARGET_NAME

__all__ = ["describe", "expectation", "known_keys"]

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "model_type": "a mapping ({{}} for an empty one)",
    "model_attributes_type": "a mapping ({{}} for an empty one)",
    "dict_type": "a mapping ({{}} for an empty one)",
    "mapping_type": "a mapping ({{}} for an empty one)",
    "tuple_type": "a list",
    "too_short": "at least one entry",
    "string_too_short": "text that is not empty",
    "greater_than": "more than {gt:.12g}",
    "greater_than_equal": "at least {ge:.12g}",
    "less_than": "less than {lt:.12g}",
    "less_than_equal": "at most {le:.12g}",
    "literal_error": "{expected}",
    "string_too_long": "at most {max_length} characters",
}
_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "letters, digits, '.', '_' and '-', beginning with a letter or digit",
    r"^(/[A-Za-z0-9._~-]+)*$": "the beginning of a path, as /llm, without a slash at its end",
    r"^[0-7]{3}$": 'three octal digits in quotes, as "660"',
    TARGET_NAME: "provider/model, as in openai/gpt-5",
}


def describe(kind: type[BaseModel], details: ErrorDetails) -> str:
    """What is wrong where `details` say so in a `kind`."""
    match details["type"]:
        case "json_invalid":
            return f"not valid JSON: {details['ctx']['error']}"
        case "extra_forbidden":
            key = str(details["loc"][-1])
            return f"unknown key '{key}'{meant_key(key, known_keys(kind, details['loc'][:-1]))}"
        case "missing":
            return "the key is missing"
        case "value_error":
            return str(details["ctx"]["error"])
    return f"expected {expectation(details)}"


def expectation(details: ErrorDetails) -> str:
    """What follows "expected": a kind of value, a range or a form."""
    context = details.get("ctx", {})
    if details["type"] == "string_pattern_mismatch":
        return _PATTERNS[context["pattern"]]
    if details["type"] in _EXPECTED:
        return _EXPECTED[details["type"]].format_map(context)
    if details["type"] == "value_error":
        return str(context["error"]).removeprefix("expected ")
    return details["msg"]


def known_keys(kind: type[BaseModel], location: Location) -> list[str]:
    """The keys that may stand at `location` (pydantic's, with the names of union branches), from the JSON Schema."""
    schema = kind.model_json_schema()
    definitions = schema.get("$defs", {})
    here = _branches(schema, definitions)
    for step in location:
        named = [branch for branch in here if branch.get("title") == step]
        below = [child for branch in here for child in _children(branch, step)]
        here = [leaf for child in below for leaf in _branches(child, definitions)] if below else named or here
    properties = [found for branch in here if isinstance(found := branch.get("properties"), dict)]
    return sorted({key for found in properties for key in found})


def _children(schema: dict[str, object], step: str | int) -> Iterator[dict[str, object]]:
    properties = schema.get("properties")
    if isinstance(properties, dict) and step in properties:
        yield properties[step]
    elif isinstance(child := schema.get("items" if isinstance(step, int) else "additionalProperties"), dict):
        yield child


def _branches(schema: dict[str, object], definitions: dict[str, dict[str, object]]) -> list[dict[str, object]]:
    """The schema itself, or every schema that it may stand for."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _branches(definitions[reference.rsplit("/", 1)[-1]], definitions)
    options = schema.get("anyOf", schema.get("oneOf"))
    if not isinstance(options, list):
        return [schema]
    return [leaf for option in options for leaf in _branches(option, definitions)]
