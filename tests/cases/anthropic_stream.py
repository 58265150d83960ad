"""A stream of Anthropic's messages API, put together as its clients do."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Message", "fold_messages"]


@dataclass
class Block:
    """`start` is the block as its start event has it, `text` all its deltas joined."""

    start: dict[str, Any]
    text: str = ""
    open: bool = True


@dataclass
class Message:
    blocks: list[Block] = field(default_factory=list)
    stop_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)


def fold_messages(events: Sequence[tuple[str, Any]]) -> Message:
    """The message of a stream that ended well. Blocks come one after another, with dense indexes."""
    assert [name for name, _ in events if name != "ping"][:1] == ["message_start"]
    assert events[-1][0] == "message_stop"
    message = Message()
    for name, data in events:
        assert data["type"] == name
        match name:
            case "message_start":
                message.usage.update(data["message"]["usage"])
            case "content_block_start":
                assert data["index"] == len(message.blocks)
                assert not any(block.open for block in message.blocks)
                message.blocks.append(Block(data["content_block"]))
            case "content_block_delta":
                block = message.blocks[data["index"]]
                assert block.open
                delta = data["delta"]
                block.text += delta.get("text") or delta.get("partial_json") or delta.get("thinking") or ""
            case "content_block_stop":
                message.blocks[data["index"]].open = False
            case "message_delta":
                message.stop_reason = data["delta"]["stop_reason"] or message.stop_reason
                message.usage.update(data["usage"])
            case _:
                assert name in ("ping", "message_stop"), name
    assert not any(block.open for block in message.blocks)
    return message
