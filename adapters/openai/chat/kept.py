"""Chat completions that are kept: what was said before them as a list shows it, and the object with its metadata."""

from collections.abc import Mapping
from typing import Any

import orjson

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import Request
from adapters.json_fields import decode_at
from adapters.openai.content import message_object
from adapters.openai.metadata import METADATA
from adapters.raw_json import fragments, raw_fields

__all__ = ["chat_with_metadata", "metadata_of", "said_before"]


def metadata_of(request: Request) -> dict[str, str]:
    """Raises InvalidRequest for what is no metadata."""
    if request.metadata is None:
        return {}
    found: dict[str, str] = decode_at(request.metadata, METADATA, "metadata")
    return found


def said_before(request: Request, chat_id: str) -> list[tuple[str, bytes]]:
    """The messages of the request, each with an id: text in `content`, several parts in `content_parts`."""
    if request.messages is None:
        raise InvalidRequest.at("store", "only completions of messages are kept")
    said = [found for message in request.messages for found in message_object(message)]
    return [_listed(found, f"{chat_id}-{place}") for place, found in enumerate(said)]


def chat_with_metadata(body: bytes, metadata: Mapping[str, str]) -> bytes:
    """The completion as it was, with its metadata."""
    fields = fragments(raw_fields(body))
    return orjson.dumps({**fields, "metadata": metadata})


def _listed(message: dict[str, Any], message_id: str) -> tuple[str, bytes]:
    content = message.get("content")
    parts = None
    if isinstance(content, list):
        parts = [part for part in content if part.get("type") in ("text", "image_url")]
        content = "".join([part["text"] for part in content if part.get("type") == "text"]) or None
    told = {**message, "id": message_id, "content": content, "content_parts": parts}
    return message_id, orjson.dumps(told)
