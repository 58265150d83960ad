"""The SSE frames of one OpenAI-shaped stream: the envelope that all chunks share, built once and kept as bytes.

A chunk is `data: {envelope, "choices": [{"index", ..., "finish_reason"}], "usage"?}`. Chat and completions differ only
in what stands inside a choice.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from adapters.canonical.errors import GatewayError
from adapters.canonical.usage import Usage
from adapters.front import AnswerHead
from adapters.openai.errors import render_error
from adapters.openai.usage import USAGE, usage_object
from adapters.openai.vocabulary import DONE
from adapters.sse import on_one_line
from adapters.usage_fields import told_apart

__all__ = ["Frames"]

_LASTING = ("system_fingerprint", "service_tier")


class Frames:
    """Builds chunks. `include_usage`: every chunk has a usage field, null until the last (running, if continuous)."""

    __slots__ = (
        "_constant",
        "_continuous",
        "_include_usage",
        "_lasting",
        "_usage",
        "_usage_fields",
        "head",
        "once",
        "tail",
    )

    def __init__(self, head: AnswerHead, object_name: str, *, include_usage: bool, continuous: bool) -> None:
        envelope = {"id": head.id, "object": object_name, "created": head.created, "model": head.model}
        self._constant = b"data: " + orjson.dumps(envelope)[:-1]
        self._lasting: dict[str, bytes] = {}
        self.once: dict[str, bytes] = {}
        """What the next chunk says besides."""
        self._include_usage = include_usage
        self._continuous = continuous
        self._usage: Usage | None = None
        self._usage_fields: dict[str, bytes] = {}
        self.head = self._constant
        """What stands before `,"choices":`."""
        self.tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        """What stands after the list of choices."""

    def report(self, fields: Mapping[str, bytes]) -> bool:
        """Fields of the upstream's chunks: OpenAI's own stand on every later chunk, any other on the next one alone.

        Those of its usage object stand in ours. Tells whether the envelope of later chunks changed.
        """
        head = self.head
        beside, inner = told_apart(fields, USAGE)
        self._usage_fields.update(inner)
        for name, raw in beside.items():
            (self._lasting if name in _LASTING else self.once)[name] = raw
        self.head = self._constant + _raw_fields(self._lasting)
        return self.head != head

    def set_usage(self, usage: Usage) -> bool:
        """Tells whether later chunks look different (running totals)."""
        self._usage = usage
        if self._continuous:
            self.tail = b',"usage":' + self._usage_json(usage) + b"}\n\n"
        return self._continuous

    def chunk(self, choice: dict[str, Any]) -> bytes:
        said = on_one_line(orjson.dumps(choice))
        return b'%b%b,"choices":[%b]%b' % (self.head, self._take_once(), said, self.tail)

    def _take_once(self) -> bytes:
        if not self.once:
            return b""
        once, self.once = _raw_fields(self.once), {}
        return once

    def finish(self) -> bytes:
        if not self._include_usage or self._usage is None:
            return DONE
        usage = self._usage_json(self._usage)
        return b'%b%b,"choices":[],"usage":%b}\n\n%b' % (self.head, self._take_once(), usage, DONE)

    def _usage_json(self, usage: Usage) -> bytes:
        return on_one_line(orjson.dumps(usage_object(usage, self._usage_fields)))

    def fail(self, error: GatewayError) -> bytes:
        return b"data: %b\n\n%b" % (render_error(error), DONE)


def _raw_fields(fields: Mapping[str, bytes]) -> bytes:
    """`,"name":raw` for each field."""
    return b"".join([b",%b:%b" % (orjson.dumps(name), on_one_line(raw)) for name, raw in fields.items()])
