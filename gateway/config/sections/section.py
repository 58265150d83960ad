"""What every section of run.yaml is made of: a strict frozen model, frozen mappings, and a few types of values."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationInfo,
)

__all__ = [
    "Amount",
    "FrozenMap",
    "HttpUrl",
    "LocalPath",
    "Name",
    "Positive",
    "Secret",
    "Section",
    "Size",
    "Text",
    "Unsupported",
    "absolute_path",
    "empty_map",
    "folder_of",
    "parse_size",
    "revealed",
]

T = TypeVar("T")

_UNITS = {"B": 1, **{f"{prefix}B": 1000**n for n, prefix in enumerate("KMGT", 1)}}
_UNITS |= {f"{prefix}iB": 1024**n for n, prefix in enumerate("KMGT", 1)}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]i?B|B)")


class Section(BaseModel):
    """Unknown keys are refused, nothing is coerced, nothing can be changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


def _freeze(mapping: Mapping[str, T]) -> Mapping[str, T]:
    return MappingProxyType(dict(mapping))


FrozenMap = Annotated[Mapping[str, T], AfterValidator(_freeze), PlainSerializer(dict, return_type=dict)]


def empty_map() -> Mapping[str, T]:
    """The default of a mapping."""
    return MappingProxyType({})


def folder_of(info: ValidationInfo) -> Path:
    """The folder that relative paths of the file start from; the working directory if none was given."""
    context = info.context or {}
    folder = context.get("folder", Path())
    return folder if isinstance(folder, Path) else Path(folder)


def absolute_path(value: str, folder: Path) -> str:
    """`value` made absolute; a relative one starts at `folder`."""
    return os.path.abspath(folder / Path(value).expanduser())


def _absolute(value: str, info: ValidationInfo) -> str:
    return absolute_path(value, folder_of(info))


def _http_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise ValueError("expected an http:// or https:// address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or any(map(str.isspace, value)):
        raise ValueError("expected an http:// or https:// address")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address must not hold a user name or a password")
    if parts.query or parts.fragment:
        raise ValueError("an address must not hold a query or a fragment")
    return value.rstrip("/")


def parse_size(value: object) -> object:
    """`"2GiB"` -> bytes. Anything that is not text passes through, for the type to judge."""
    if not isinstance(value, str) or value == "auto":
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError('expected a size such as "2GiB" or "512MiB"')
    return int(float(match.group(1)) * _UNITS[match.group(2)])


_STAND_IN = re.compile(r"(?:[A-Za-z]+ )?(?:\$\w+|\$?env:\w+|os\.environ/\w+|\{\{.*\}\}|<.*>|%\w+%)")
"""How other tools and their documents write "the value of a variable", or "your key"."""


def _sendable(secret: SecretStr, info: ValidationInfo) -> SecretStr:
    value = secret.get_secret_value()
    if _STAND_IN.fullmatch(value) and value not in (info.context or {}).get("from_outside", ()):
        raise ValueError('expected the secret itself; write "${NAME}" for the environment variable NAME')
    if not all("\x20" <= char <= "\x7e" for char in value) or value != value.strip():
        raise ValueError("expected printable ASCII without blanks at its ends, since it travels in a header")
    return secret


Secret = Annotated[SecretStr, AfterValidator(_sendable)]
"""A value that travels in a header and is never shown."""


def revealed(values: Mapping[str, SecretStr]) -> dict[str, str]:
    """Headers, or variables, as they are sent."""
    return {name: value.get_secret_value() for name, value in values.items()}


Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]
Positive = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
LocalPath = Annotated[str, Field(min_length=1), AfterValidator(_absolute)]
"""A path of this machine, made absolute; a relative one starts at the folder of run.yaml."""
Size = Annotated[Positive | Literal["auto"], BeforeValidator(parse_size, json_schema_input_type=int | str)]
"""A number of bytes; the file may say "2GiB"."""
Unsupported = Literal["error", "drop"]
