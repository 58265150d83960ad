"""One golden case: a folder with a client's request, an upstream's recorded answer, and what we make of both.

    request.json                 the client's body
    upstream.sse                 the upstream's stream, byte for byte, and/or
    upstream.json                its answer when not asked to stream, or
    upstream_error.json          {"status", "body"}: its refusal
    events.json                  expected: the events of the stream (of the body, where there is no stream)
    client.sse, client.json      expected: what the client gets
    sent.json                    expected, where it is there: what the upstream gets

The expected files are written by `pytest --update-golden`.
"""

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import Event

__all__ = ["GoldenCase", "described", "golden_cases"]

_GOLDEN = Path(__file__).parent / "golden"


class GoldenCase:
    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.dialect = folder.parent.name
        self.id = f"{self.dialect}/{folder.name}"
        self._folder = folder
        self.request = (folder / "request.json").read_bytes()
        self.stream = self._read("upstream.sse")
        self.body = self._read("upstream.json")
        self.refusal = self._read("upstream_error.json")
        self.shows_what_is_sent = (folder / "sent.json").exists()

    def _read(self, name: str) -> bytes | None:
        path = self._folder / name
        return path.read_bytes() if path.exists() else None

    def check(self, name: str, found: bytes, *, update: bool) -> None:
        """Compares with the expected file, or writes it."""
        path = self._folder / name
        if update:
            path.write_bytes(found)
        assert path.read_bytes() == found, f"{path} differs; read the diff after pytest --update-golden"


def golden_cases(dialect: str) -> list[GoldenCase]:
    return [GoldenCase(folder) for folder in sorted((_GOLDEN / dialect).iterdir())]


def described(events: Sequence[Event], error: GatewayError | None = None) -> bytes:
    """Events as JSON that a person can read: one a line, fields at their default left out."""
    lines = [json.dumps(_describe(event), ensure_ascii=False) for event in events]
    if error is not None:
        told = {"raised": type(error).__name__, "status": error.status, "code": error.code, "message": error.message}
        lines.append(json.dumps(told, ensure_ascii=False))
    return "[\n{}\n]\n".format(",\n".join(lines)).encode()


def _describe(value: Any) -> Any:
    if isinstance(value, Struct):
        found: dict[str, Any] = {"is": type(value).__name__}
        for field in fields(value):
            inner = getattr(value, field.name)
            if field.default is NODEFAULT or inner != field.default:
                found[field.name] = _describe(inner)
        return found
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {name: _describe(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_describe(inner) for inner in value]
    return value
