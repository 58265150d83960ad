"""What an upstream of the Responses API sends, as typed structs. Whatever is opaque stays raw."""

from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from adapters.openai.logprobs import WireEntry
from adapters.openai.responses.usage import WireResponseUsage
from adapters.openai.responses.vocabulary import CUSTOM_CALL, FUNCTION_CALL, MESSAGE, REASONING

__all__ = ["WireContent", "WireEvent", "WireItem", "WireResponse", "decode_event", "decode_item", "decode_response"]


class WireEvent(Struct):
    """One event of a stream; a `delta` is text except for shell calls."""

    type: str = ""
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    delta: Raw = Raw()
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    item: Raw = Raw()
    annotation: Raw = Raw()
    response: Raw = Raw()
    logprobs: list[WireEntry] | None = None
    token_ids: list[int] | None = None


class WireContent(Struct):
    """A part of a message's content, of a thought's content or of its summary."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: list[Raw] | None = None
    logprobs: list[WireEntry] | None = None


class WireItem(Struct):
    type: str = ""
    id: str | None = None
    status: str | None = None
    content: list[WireContent] | None = None
    summary: list[WireContent] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None


class WireIncomplete(Struct):
    reason: str | None = None


class WireResponse(Struct):
    id: str | None = None
    created_at: float | None = None
    model: str | None = None
    status: str | None = None
    error: Any = None
    incomplete_details: WireIncomplete | None = None
    output: list[Raw] | None = None
    usage: WireResponseUsage | None = None
    service_tier: Any = None


class _Kind(Struct):
    type: str = ""


_MAPPED = frozenset((MESSAGE, REASONING, FUNCTION_CALL, CUSTOM_CALL, ""))
_decode_kind = Decoder(_Kind).decode
_decode_mapped = Decoder(WireItem).decode
decode_event = Decoder(WireEvent).decode
decode_response = Decoder(WireResponse).decode


def decode_item(raw: bytes) -> WireItem:
    """Of an item that nobody maps the type alone: its other fields have types of their own (the `arguments` of a
    `tool_search_call` are an object)."""
    kind = _decode_kind(raw).type
    return _decode_mapped(raw) if kind in _MAPPED else WireItem(type=kind)
