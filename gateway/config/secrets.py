"""Which values of a configuration are secret."""

from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from gateway.config.document import parse_scalar
from gateway.config.faults import Location
from gateway.config.redaction import is_credential_header
from gateway.config.sections.run_file import RunFile
from gateway.config.sections.section import Section

__all__ = ["collect_secrets", "is_telling"]

_SHORTEST_ORDINARY = 8
_PLACEHOLDERS = frozenset({"", "none", "null", "empty", "dummy", "not-needed", "no-key-required"})
"""What people write as the key of a server that needs none: hiding it would only blot out words."""


def collect_secrets(run: RunFile, substituted: Mapping[Location, tuple[str, ...]]) -> frozenset[str]:
    """What must be hidden wherever it turns up in a text.

    That is every value of a secret field, however it was given, and what `${...}` put into ordinary fields, unless it
    is a number or a word so short that hiding it would blot out ordinary text.
    """
    secrets = set(_secret_fields(run))
    for values in substituted.values():
        secrets.update(value for value in values if is_telling(value))
    return frozenset(value for value in secrets if value.lower() not in _PLACEHOLDERS)


def is_telling(value: str) -> bool:
    """Whether a value of an ordinary field tells enough to be hidden by value."""
    return len(value) >= _SHORTEST_ORDINARY and isinstance(parse_scalar(value), str)


def _secret_fields(section: Section) -> Iterator[str]:
    for name in type(section).model_fields:
        value: object = getattr(section, name)
        if isinstance(value, SecretStr):
            yield from _parts(value.get_secret_value(), is_address=name in ("proxy", "url"))
        elif isinstance(value, Section):
            yield from _secret_fields(value)
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, Section):
                    yield from _secret_fields(item)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                if isinstance(item, Section):
                    yield from _secret_fields(item)
                elif isinstance(item, SecretStr) and is_credential_header(key):
                    yield from _header(item.get_secret_value())


def _header(value: str) -> Iterator[str]:
    """The value, and what follows the scheme in `Bearer ...`."""
    yield value
    _, blank, rest = value.partition(" ")
    if blank:
        yield rest


def _parts(value: str, *, is_address: bool) -> Iterator[str]:
    if not is_address:
        yield value
        return
    password = urlsplit(value).password
    if password:
        yield value
        yield password
        yield unquote(password)
