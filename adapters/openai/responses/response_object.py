"""The Response object at each moment of its life."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from adapters.canonical.errors import GatewayError
from adapters.canonical.request import Request
from adapters.canonical.usage import Usage
from adapters.front import AnswerHead
from adapters.openai.responses.usage import response_usage_object
from adapters.openai.responses.vocabulary import error_code
from adapters.openai.usage import USAGE
from adapters.raw_json import fragments
from adapters.sse import on_one_line
from adapters.usage_fields import told_apart

__all__ = ["FINAL", "ResponseObject"]

FINAL = frozenset(("completed", "failed", "incomplete", "cancelled"))
"""States that nothing follows."""
_TIER = "service_tier"


class ResponseObject:
    """Builds it. What does not change is rendered once."""

    def __init__(self, request: Request, head: AnswerHead) -> None:
        first = {"id": head.id, "object": "response", "created_at": head.created}
        last: dict[str, Any] = {"model": head.model}
        last.update(fragments(request.mirrored))
        last.pop(_TIER, None)
        self._service_tier = request.mirrored.get(_TIER, b'"default"')
        self._head = orjson.dumps(first)[:-1]
        self._tail = on_one_line(orjson.dumps(last))[1:]
        self._known = (first, last)
        self._fields: dict[str, bytes] = {}
        self._usage_fields: dict[str, bytes] = {}

    def report(self, fields: Mapping[str, bytes]) -> None:
        """What an upstream of this dialect says besides."""
        beside, inner = told_apart(fields, USAGE)
        self._fields.update(beside)
        self._usage_fields.update(inner)

    def render(
        self,
        status: str,
        output: Sequence[bytes] = (),
        *,
        usage: Usage | None = None,
        error: GatewayError | None = None,
        incomplete: str | None = None,
        completed_at: int | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The object as JSON. `output` are the items; `incomplete` is the reason why it is not complete."""
        found: dict[str, Any] = {
            "status": status,
            "completed_at": completed_at,
            "error": None if error is None else error_of(error),
            "incomplete_details": None if incomplete is None else {"reason": incomplete},
            "output": [orjson.Fragment(item) for item in output],
            "usage": None if usage is None else response_usage_object(usage, self._usage_fields),
            _TIER: orjson.Fragment(self._fields.get(_TIER, self._service_tier)),
            **(more or {}),
        }
        known = orjson.dumps(found)[1:-1]
        return b"%b,%b,%b" % (self._head, known, self._with_fields(found))

    def _with_fields(self, found: Mapping[str, Any]) -> bytes:
        """The tail, with unmapped fields of the upstream that stand nowhere else."""
        known = (found, *self._known)
        extra = {
            name: orjson.Fragment(raw)
            for name, raw in self._fields.items()
            if not any(name in fields for fields in known)
        }
        return b"%b,%b" % (self._tail[:-1], orjson.dumps(extra)[1:]) if extra else self._tail


def error_of(error: GatewayError) -> dict[str, Any]:
    """The code is one of the API's own few; the type says what exactly went wrong."""
    return {
        "code": error_code(error),
        "message": error.message,
        "type": error.code or error.type,
        "param": error.param,
    }
