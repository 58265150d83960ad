"""Anthropic's words on the wire, and a provider connected to a server that says them."""

import json
from functools import partial
from typing import Any

from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Request
from providers.remote.anthropic import AnthropicProvider
from tests.mock_upstream import Answer
from tests.providers.remote.connection import connected_to

__all__ = ["connected", "delta", "event", "finish", "request", "start", "streamed", "text_block", "whole"]

USAGE = {"input_tokens": 3, "output_tokens": 4}


def event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())


def start() -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": USAGE}
    return event("message_start", message={**message, "stop_reason": None, "stop_sequence": None})


def delta(index: int, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta=fields)


def text_block(*texts: str, index: int = 0) -> list[bytes]:
    """The writes of one block of text."""
    opened = event("content_block_start", index=index, content_block={"type": "text", "text": ""})
    deltas = [delta(index, type="text_delta", text=text) for text in texts]
    return [opened, *deltas, event("content_block_stop", index=index)]


def finish(reason: str = "end_turn") -> list[bytes]:
    stop = {"stop_reason": reason, "stop_sequence": None}
    return [event("message_delta", delta=stop, usage={"output_tokens": 4}), event("message_stop")]


def streamed(*pieces: bytes, reason: str = "end_turn") -> Answer:
    return Answer.sse([start(), *pieces, *finish(reason)])


def whole(*content: dict[str, Any], reason: str = "end_turn", **more: Any) -> Answer:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content}
    body = {**message, "stop_reason": reason, "stop_sequence": None, "usage": USAGE, **more}
    return Answer.json(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode())


def request(*, stream: bool = True, **changes: Any) -> Request:
    values: dict[str, Any] = {"messages": (Message(role=USER, parts=(Text(text="hi"),)),), **changes}
    return Request(**{"model": "m", "dialect": "openai.chat", "stream": stream, **values})


connected = partial(connected_to, AnthropicProvider, type="anthropic")
