"""What Anthropic sends, as types: the events of a stream, messages, blocks. Unknown fields stay in the raw JSON."""

from msgspec import Raw, Struct
from msgspec.json import Decoder

__all__ = [
    "WireBlock",
    "WireDelta",
    "WireEvent",
    "WireMessage",
    "WireStop",
    "decode_block",
    "decode_event",
    "decode_message",
    "decode_message_delta",
    "decode_stop",
]


class WireDelta(Struct):
    """Of a block, or of the message (which is read again, whole)."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: Raw = Raw()


class WireEvent(Struct):
    type: str = ""
    index: int | None = None
    delta: WireDelta | None = None
    content_block: Raw = Raw()
    message: Raw = Raw()
    usage: Raw = Raw()


class WireMessageDelta(Struct):
    delta: Raw = Raw()


class WireBlock(Struct):
    """What is known of blocks; unknown fields are read from the raw block."""

    type: str = ""
    text: str | None = None
    citations: list[Raw] | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()


class WireMessage(Struct):
    type: str = ""
    id: str | None = None
    model: str | None = None
    content: list[Raw] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Raw = Raw()


class WireStop(Struct):
    stop_reason: str | None = None
    stop_sequence: str | None = None


decode_event = Decoder(WireEvent).decode
decode_block = Decoder(WireBlock).decode
decode_message = Decoder(WireMessage).decode
decode_stop = Decoder(WireStop).decode
decode_message_delta = Decoder(WireMessageDelta).decode
