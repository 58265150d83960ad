"""Plain values -> `RunFile`, with pydantic's errors put into our words and our places."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.config.cross_checks import name_as_target
from gateway.config.document import parse_scalar
from gateway.config.expectations import expectation, known_keys
from gateway.config.faults import Fault, Location, hide_quoted
from gateway.config.foreign_words import meant_key, meant_type
from gateway.config.resolve import Resolved
from gateway.config.sections.models import TARGET_NAME
from gateway.config.sections.run_file import RunFile

__all__ = ["in_file", "validate"]

_MAPPINGS = frozenset(("model_type", "model_attributes_type", "dict_type", "mapping_type"))
_HOLDS_SECRETS = _MAPPINGS | {"tuple_type"}
"""Where one of these is due, a bare text may be the secret that belongs inside."""


def validate(
    resolved: Resolved, *, provider_types: Collection[str], folder: Path
) -> tuple[RunFile | None, list[Fault], Resolved]:
    """The validated file or None, what is wrong, and the values with every lone `${V}` in the type of its field."""
    context = {"provider_types": provider_types, "folder": folder, "from_outside": frozenset(resolved.lone.values())}
    try:
        return RunFile.model_validate(resolved.value, context=context), [], resolved
    except ValidationError as error:
        first = error
    retyped = _retype(resolved, first)
    if retyped is None:
        return None, list(_faults(first, resolved, provider_types)), resolved
    try:
        return RunFile.model_validate(retyped.value, context=context), [], retyped
    except ValidationError as error:
        return None, list(_faults(error, retyped, provider_types)), retyped


def _retype(resolved: Resolved, error: ValidationError) -> Resolved | None:
    """The values with those lone `${V}` that were refused as text read as a YAML scalar; None if there are none."""
    refused = {
        in_file(details["loc"], resolved.value) for details in error.errors(include_url=False, include_input=False)
    }
    changes = {at: parse_scalar(text) for at, text in resolved.lone.items() if at in refused}
    if not any(not isinstance(value, str) for value in changes.values()):
        return None
    return Resolved(
        _replace(resolved.value, changes, ()),
        resolved.lines,
        resolved.substituted,
        resolved.lone,
        resolved.missing,
        resolved.malformed,
    )


def _replace(value: object, changes: Mapping[Location, object], at: Location) -> object:
    if at in changes:
        return changes[at]
    if isinstance(value, Mapping):
        return {key: _replace(child, changes, (*at, key)) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(_replace(child, changes, (*at, index)) for index, child in enumerate(value))
    return value


def _faults(error: ValidationError, resolved: Resolved, provider_types: Collection[str]) -> Iterator[Fault]:
    """One fault for each place; the branches of a union are told together."""
    by_place: dict[Location, list[ErrorDetails]] = {}
    unknown = {fault.location for fault in (*resolved.missing, *resolved.malformed)}
    all_errors = error.errors(include_url=False)
    for details in all_errors:
        location = details["loc"]
        if details["type"] == "too_short" and any(
            location == other["loc"][: len(location)] != other["loc"] for other in all_errors
        ):
            continue  # its entries are wrong, not missing
        place = in_file(details["loc"], resolved.value)
        if details["type"] != "extra_forbidden" and place in unknown:
            continue  # only a placeholder stands there
        if details["type"] == "missing":
            place = (*place, details["loc"][-1])
        by_place.setdefault(place, []).append(details)
    for place, all_details in by_place.items():
        yield Fault(place, resolved.line(place), _message(place, all_details, resolved, provider_types))


def _message(
    place: Location, all_details: list[ErrorDetails], resolved: Resolved, provider_types: Collection[str]
) -> str:
    first = all_details[0]
    match first["type"]:
        case "extra_forbidden":
            return f"unknown key '{place[-1]}'{meant_key(str(place[-1]), known_keys(RunFile, first['loc'][:-1]))}"
        case "missing":
            return "the key is missing" + _no_type(place, provider_types)
        case "value_error":
            message = str(first["ctx"]["error"])
            return hide_quoted(message) if place in resolved.substituted else message
        case "string_pattern_mismatch" if _is_name_as_target(first, resolved.value):
            message = name_as_target(first["input"])
            return hide_quoted(message) if place in resolved.substituted else message
    expected = list(dict.fromkeys(expectation(details) for details in all_details))
    got = _got(place, all_details, resolved)
    return f"expected {' or '.join(expected)}, got {got}{_indentation(place, first)}"


def _indentation(place: Location, details: ErrorDetails) -> str:
    """What may have happened where a key of an entry stands beside the entries."""
    if details["type"] not in _MAPPINGS or place[-1] not in known_keys(RunFile, details["loc"]):
        return ""
    return f"; is '{place[-1]}' a key of the entry above it? Then it stands further right"


def _no_type(place: Location, known: Collection[str]) -> str:
    """A provider that is named after its type needs none: why this name does not do."""
    match place:
        case ("providers", str(name), "type"):
            return f", and '{name}' is no type{meant_type(name, sorted(known))}"
    return ""


def _is_name_as_target(details: ErrorDetails, file: object) -> bool:
    models = file.get("models") if isinstance(file, Mapping) else None
    is_target = details["ctx"]["pattern"] == TARGET_NAME
    return is_target and isinstance(models, Mapping) and details["input"] in models


def _got(place: Location, all_details: list[ErrorDetails], resolved: Resolved) -> str:
    """What stood there: its value if it is a word or number of the file that can't be a secret, else its kind."""
    value = all_details[0]["input"]
    kinds = {bool: "true or false", str: "text", int: "a number", float: "a number", type(None): "nothing"}
    if place in resolved.substituted:
        return "a substituted value"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, tuple):
        return "a list" if value else "an empty list"
    due = {details["type"] for details in all_details}
    may_be_secret = "string_type" in due or (isinstance(value, str) and not due.isdisjoint(_HOLDS_SECRETS))
    if value is None or value == "" or may_be_secret or len(str(value)) > 60:
        return "nothing" if value is None or value == "" else kinds.get(type(value), "something else")
    return repr(value).lower() if isinstance(value, bool) else repr(value)


def in_file(location: Location, value: object) -> Location:
    """pydantic's location without the names of union branches and without what a short form left out."""
    place: Location = ()
    for step in location:
        match value:
            case Mapping() if step in value:
                value = value[step]
            case tuple() if isinstance(step, int) and step < len(value):
                value = value[step]
            case _:
                continue
        place = (*place, step)
    return place
