"""A chat client's request, what Bedrock's upstream makes of it and of its answer, and how AWS writes a stream."""

import json
import struct
import zlib
from typing import Any

from adapters.bedrock.upstream import ConverseUpstream
from adapters.front import AnswerHead
from adapters.openai.chat.front import ChatFront
from providers.remote.aws import EventStreamFrames
from tests.adapters.sides import Sides

__all__ = ["HEAD", "PROVIDER", "Exchange", "chat", "event_stream"]

HEAD = AnswerHead("answer-1", 1790000001, "public-name")
PROVIDER = "aws"


class Exchange(Sides):
    def __init__(self, body: bytes) -> None:
        super().__init__(ChatFront(), ConverseUpstream(PROVIDER, EventStreamFrames), HEAD, body)


def chat(**fields: Any) -> Exchange:
    """An exchange for a chat body with these fields set or replaced."""
    body = {"model": "anthropic.claude-sonnet-4-6", "messages": [{"role": "user", "content": "hi"}], **fields}
    return Exchange(json.dumps(body).encode())


def event_stream(*events: tuple[str, Any]) -> bytes:
    """A stream of these events, by type."""
    return b"".join([_event(kind, json.dumps(payload, ensure_ascii=False).encode()) for kind, payload in events])


def _event(kind: str, payload: bytes) -> bytes:
    is_fault = kind.endswith("Exception")
    names = {":exception-type" if is_fault else ":event-type": kind, ":content-type": "application/json"}
    names[":message-type"] = "exception" if is_fault else "event"
    headers = b"".join(
        [
            struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
            for name, value in names.items()
        ]
    )
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", zlib.crc32(message))
