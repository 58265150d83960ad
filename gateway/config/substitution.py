"""`${...}` in a string -> the value. Owns the syntax; the environment and the folder of relative files are passed in.

    ${V}             the variable V, which must exist
    ${V:-default}    V, or the default if V is unset or empty
    ${V:?message}    V, or an error with this message if V is unset or empty
    ${file:/path}    the file's text without its last line break
    $${              a literal ${

What is put in is not looked at again: a value that holds `${` stays as it is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BadSubstitution", "MissingValue", "Substituted", "substitute"]

_MAX_FILE_BYTES = 65_536
_PLACE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)", re.DOTALL)
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::([-?])(.*))?", re.DOTALL)


class BadSubstitution(ValueError):
    """The text between `${` and `}` has no meaning."""


class MissingValue(ValueError):
    """A variable or a file that is named does not exist."""


@dataclass(frozen=True, slots=True)
class Substituted:
    """`values` are what came from outside the file; `lone` says that the whole text was one `${...}`."""

    text: str
    values: tuple[str, ...]
    lone: bool


def substitute(text: str, env: Mapping[str, str], folder: Path) -> Substituted:
    """`text` with every `${...}` replaced. Blocks while it reads a named file.

    Raises BadSubstitution or MissingValue, whose text names the variable or file and never a value.
    """
    parts: list[str] = []
    values: list[str] = []
    end = 0
    lone = False
    for place in _PLACE.finditer(text):
        parts.append(text[end : place.start()])
        end = place.end()
        if place.group(1) is None:
            parts.append("${")
            continue
        if not place.group(2):
            raise BadSubstitution("'${' without its '}'; write '$${' for a literal one")
        value, from_outside = _look_up(place.group(1), env, folder)
        parts.append(value)
        if from_outside:
            values.append(value)
        lone = place.start() == 0 and end == len(text)
    return Substituted("".join(parts) + text[end:], tuple(values), lone)


def _look_up(inner: str, env: Mapping[str, str], folder: Path) -> tuple[str, bool]:
    """The value, and whether it came from outside the file (a default did not)."""
    if inner.startswith("file:"):
        return _read(inner.removeprefix("file:"), folder), True
    match = _VARIABLE.fullmatch(inner)
    if match is None:
        raise BadSubstitution(
            f"'${{{inner}}}' has no meaning, expected ${{NAME}}, ${{NAME:-default}}, ${{NAME:?message}} "
            "or ${file:/path}"
        )
    name, operator, rest = match.groups()
    value = env.get(name)
    if operator is None:
        if value is None:
            raise MissingValue(f"the environment variable '{name}' is not set")
        return value, True
    if value:
        return value, True
    if operator == "-":
        return rest, False
    raise MissingValue(f"the environment variable '{name}' is not set: {rest}")


def _read(name: str, folder: Path) -> str:
    if not name:
        raise BadSubstitution("'${file:}' names no file")
    path = folder / name
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadSubstitution(f"the file '{name}' is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "not a file name"
        raise MissingValue(f"the file '{name}' cannot be read: {why}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise BadSubstitution(f"the file '{name}' is larger than {_MAX_FILE_BYTES} bytes")
    return text.removesuffix("\n").removesuffix("\r")
