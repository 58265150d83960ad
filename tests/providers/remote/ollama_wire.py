"""Ollama's words on the wire, and a provider connected to a server that says them."""

import json
from functools import partial
from typing import Any

from providers.remote.ollama import OllamaProvider
from tests.mock_upstream import Answer
from tests.providers.remote.connection import connected_to

__all__ = ["connected", "last", "line", "lined", "streamed", "whole"]

COUNTS = {"prompt_eval_count": 3, "eval_count": 4, "eval_duration": 5}


def line(content: str = "", *, done: bool = False, **more: Any) -> bytes:
    message = {"role": "assistant", "content": content}
    for name in ("thinking", "tool_calls"):
        if name in more:
            message[name] = more.pop(name)
    found = {"model": "m", "created_at": "2026-11-29T10:00:00Z", "message": message, "done": done, **more}
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def last(reason: str = "stop", content: str = "", **more: Any) -> bytes:
    return line(content, done=True, done_reason=reason, **COUNTS, **more)


def lined(*pieces: bytes, **options: Any) -> Answer:
    return Answer(headers={"content-type": "application/x-ndjson"}, pieces=pieces, **options)


def streamed(*pieces: bytes, reason: str = "stop") -> Answer:
    return lined(*pieces, last(reason))


def whole(content: str = "", reason: str = "stop", **more: Any) -> Answer:
    return Answer.json(last(reason, content, **more))


connected = partial(connected_to, OllamaProvider, type="ollama", below="", api_key=None)
