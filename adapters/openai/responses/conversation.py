"""Bodies of the conversations API, and its objects."""

from collections.abc import Mapping, Sequence

import orjson

from adapters.canonical.errors import InvalidRequest
from adapters.json_fields import JsonObject, parse_object
from adapters.openai.metadata import METADATA
from adapters.openai.responses.input_items import InputReader
from adapters.openai.responses.sealing import ClientSeal
from adapters.raw_json import RAW_ITEMS

__all__ = ["check_items", "conversation_object", "read_changes", "read_items", "read_new_conversation"]


def read_new_conversation(raw: bytes, *, max_depth: int) -> tuple[list[bytes], dict[str, str]]:
    """Its first items, and its metadata. An empty body asks for neither. Raises InvalidRequest, naming the path."""
    body = parse_object(raw or b"{}", max_depth=max_depth)
    items = body.take("items", RAW_ITEMS) or []
    metadata = body.take("metadata", METADATA) or {}
    body.refuse_rest()
    return list(map(bytes, items)), metadata


def read_changes(raw: bytes, *, max_depth: int) -> dict[str, str]:
    """The new metadata of what is kept; null takes all of it away. Raises InvalidRequest, naming the path."""
    body = parse_object(raw, max_depth=max_depth)
    metadata: dict[str, str]
    if body.peek_raw("metadata") is None:
        metadata = body.require("metadata", METADATA)
    else:
        metadata = body.take("metadata", METADATA) or {}
    body.refuse_rest()
    return metadata


def read_items(raw: bytes, *, max_depth: int) -> list[bytes]:
    """Raises InvalidRequest, naming the path."""
    body: JsonObject = parse_object(raw, max_depth=max_depth)
    items = body.require("items", RAW_ITEMS)
    body.refuse_rest()
    if not items:
        raise InvalidRequest.at("items", "the list must not be empty")
    return list(map(bytes, items))


def check_items(items: Sequence[bytes], seal: ClientSeal, references: Mapping[str, bytes]) -> None:
    """Raises InvalidRequest, naming the path, for what no request could say."""
    reader = InputReader(seal, references)
    for place, raw in enumerate(items):
        reader.add(raw, f"items[{place}]")


def conversation_object(conversation_id: str, created: int, metadata: bytes) -> bytes:
    """`metadata` is raw JSON."""
    return orjson.dumps(
        {
            "id": conversation_id,
            "object": "conversation",
            "created_at": created,
            "metadata": orjson.Fragment(metadata),
        }
    )
