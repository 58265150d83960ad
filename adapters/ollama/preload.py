"""Requests that ask nothing: Ollama's clients send them so that a model is loaded, or let go, before they need it."""

from typing import Any

import orjson
from msgspec import Struct

from adapters.field_types import BOOL, NAME
from adapters.json_fields import parse_object
from adapters.ollama.durations import take_keep_alive
from adapters.timestamps import timestamp

__all__ = ["Preload", "parse_preload", "render_preload"]

_MAX_BYTES = 4096
"""A longer body asks something."""
_EMPTY = (None, b"null", b'""', b"[]")
_ASKING = ("prompt", "suffix", "messages")


class Preload(Struct, frozen=True):
    """`keep_alive_s`: how long the model is to stay; None: as it does by itself."""

    model: str
    stream: bool
    keep_alive_s: float | None

    @property
    def unloads(self) -> bool:
        return self.keep_alive_s == 0


def parse_preload(raw: bytes, *, max_depth: int) -> Preload | None:
    """None for a body that asks something. Raises InvalidRequest, naming the path."""
    if len(raw) > _MAX_BYTES:
        return None
    body = parse_object(raw, max_depth=max_depth)
    if any(body.take_raw(name) not in _EMPTY for name in _ASKING):
        return None
    stream = body.take("stream", BOOL)
    return Preload(body.require("model", NAME), stream is None or stream, take_keep_alive(body))


def render_preload(preload: Preload, created: int, *, chat: bool) -> bytes:
    """The whole answer, which is one line of a stream as well. `created` is Unix seconds."""
    found: dict[str, Any] = {"model": preload.model, "created_at": timestamp(created)}
    if chat:
        found["message"] = {"role": "assistant", "content": ""}
    else:
        found["response"] = ""
    found |= {"done": True, "done_reason": "unload" if preload.unloads else "load"}
    return orjson.dumps(found) + b"\n"
