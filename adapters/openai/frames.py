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
from adapters.openai.usage import usage_object
from adapters.openai.vocabulary import DONE

__all__ = ["Frames", "raw_fields"]


class Frames:
    """Builds chunks. `include_usage`: every chunk has a usage field, null until the last (running, if continuous)."""

    __slots__ = ("_constant", "_continuous", "_fields", "_include_usage", "_once", "_usage", "head", "tail")

    def __init__(self, head: AnswerHead, object_name: str, *, include_usage: bool, continuous: bool) -> None:
        envelope = {"id": head.id, "object": object_name, "created": head.created, "model": head.model}
        self._constant = b"data: " + orjson.dumps(envelope)[:-1]
        self._fields: dict[str, bytes] = {}
        self._once: dict[str, bytes] = {}
        self._include_usage = include_usage
        self._continuous = continuous
        self._usage: Usage | None = None
        self.head = self._constant
        """What stands before `,"choices":`."""
        self.tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        """What stands after the list of choices."""

    def set_fields(self, fields: Mapping[str, bytes]) -> bool:
        """Top-level fields of the upstream, on this and every later chunk. Tells whether the envelope changed."""
        if all(self._fields.get(name) == raw for name, raw in fields.items()):
            return False
        self._fields.update(fields)
        self.head = self._constant + raw_fields(self._fields)
        return True

    def add_once(self, fields: Mapping[str, bytes]) -> None:
        """Top-level fields on the next chunk alone."""
        self._once.update(fields)

    def set_usage(self, usage: Usage) -> bool:
        """Tells whether later chunks look different (running totals)."""
        self._usage = usage
        if self._continuous:
            self.tail = b',"usage":' + orjson.dumps(usage_object(usage)) + b"}\n\n"
        return self._continuous

    def chunk(self, choice: dict[str, Any]) -> bytes:
        once = b""
        if self._once:
            once = raw_fields(self._once)
            self._once = {}
        return b'%b%b,"choices":[%b]%b' % (self.head, once, orjson.dumps(choice), self.tail)

    def finish(self) -> bytes:
        if not self._include_usage or self._usage is None:
            return DONE
        usage = orjson.dumps(usage_object(self._usage))
        return b'%b,"choices":[],"usage":%b}\n\n%b' % (self.head, usage, DONE)

    def fail(self, error: GatewayError) -> bytes:
        return b"data: %b\n\n%b" % (render_error(error), DONE)


def raw_fields(fields: Mapping[str, bytes]) -> bytes:
    """`,"name":raw` for each field."""
    return b"".join([b",%b:%b" % (orjson.dumps(name), raw) for name, raw in fields.items()])
