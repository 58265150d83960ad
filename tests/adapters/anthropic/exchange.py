"""A client's request, and what its front and Anthropic's upstream make of it, as the tests here use them."""

import json
from typing import Any

from adapters.anthropic.front import MessagesFront
from adapters.anthropic.upstream import MessagesUpstream
from adapters.front import AnswerHead, Front
from adapters.openai.chat.front import ChatFront
from tests.adapters.sides import Sides, refuse_constant

__all__ = ["HEAD", "PROVIDER", "Exchange", "blocks_of", "chat", "events_of", "messages", "sse"]

HEAD = AnswerHead("msg_gateway", 1790000001, "public-name")
PROVIDER = "claude"


class Exchange(Sides):
    """`front` is Anthropic's for a body with a limit at its top and OpenAI's chat for another."""

    def __init__(self, body: bytes) -> None:
        front: Front = MessagesFront() if "max_tokens" in json.loads(body) else ChatFront()
        self.messages_upstream = MessagesUpstream(PROVIDER)
        super().__init__(front, self.messages_upstream, HEAD, body)

    def version(self) -> str:
        return self.messages_upstream.headers(self.request)["anthropic-version"]


def messages(**fields: Any) -> Exchange:
    """An exchange for a Messages body with these fields set or replaced."""
    user = {"role": "user", "content": "hi"}
    return Exchange(json.dumps({"model": "m", "max_tokens": 4096, "messages": [user], **fields}).encode())


def chat(**fields: Any) -> Exchange:
    """The same of a chat client, whose limit is `max_completion_tokens`."""
    return Exchange(json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}).encode())


def sse(*events: dict[str, Any]) -> bytes:
    """A stream of these events."""
    return b"".join([b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events])


def events_of(frames: bytes) -> list[dict[str, Any]]:
    """The data of each frame, whose names must agree."""
    found = []
    *blocks, last = frames.split(b"\n\n")
    assert last == b""
    for block in blocks:
        name, data = block.split(b"\n")
        event = json.loads(data.removeprefix(b"data: "), parse_constant=refuse_constant)
        assert name == b"event: " + event["type"].encode()
        found.append(event)
    return found


def blocks_of(frames: bytes) -> list[dict[str, Any]]:
    """The content blocks that a stream which ended well adds up to. Fails where their order is not the API's."""
    first, *events = events_of(frames)
    assert first["type"] == "message_start"
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    blocks: list[dict[str, Any]] = []
    is_open = False
    for event in events[:-2]:
        match event["type"]:
            case "content_block_start":
                assert not is_open
                assert event["index"] == len(blocks)
                blocks.append({**event["content_block"], "json": ""})
                is_open = True
            case "content_block_delta":
                assert is_open
                assert event["index"] == len(blocks) - 1
                _add(blocks[-1], event["delta"])
            case "content_block_stop":
                assert is_open
                assert event["index"] == len(blocks) - 1
                is_open = False
                joined = blocks[-1].pop("json")
                if joined:
                    blocks[-1]["input"] = json.loads(joined)
                assert blocks[-1].get("text") != ""
            case other:
                raise AssertionError(other)
    assert not is_open
    return blocks


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    match delta["type"], block["type"]:
        case "text_delta", "text":
            block["text"] += delta["text"]
        case "citations_delta", "text":
            block.setdefault("citations", []).append(delta["citation"])
        case "thinking_delta", "thinking":
            block["thinking"] += delta["thinking"]
        case "signature_delta", "thinking":
            block["signature"] = delta["signature"]
        case "input_json_delta", "tool_use":
            block["json"] += delta["partial_json"]
        case other:
            raise AssertionError(other)
