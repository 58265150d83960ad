"""Cache hints as the fields that chat servers take on parts of content, four at most: the system's, then the newest.

`cache_control` is how Anthropic's hints are written by servers that pass them on, `prompt_cache_breakpoint` is OpenAI's
own. A hint that the client itself wrote in this dialect is there already.
"""

import orjson
from msgspec.structs import replace

from adapters.canonical.messages import DEVELOPER, SYSTEM, CacheHint, Message, Part, ProviderData, Text, joined_data
from adapters.canonical.request import Request
from adapters.openai.vocabulary import CHAT

__all__ = ["BREAKPOINT", "CACHE_CONTROL", "with_cache_fields"]

BREAKPOINT = "prompt_cache_breakpoint"
CACHE_CONTROL = "cache_control"
_MAX_HINTS = 4


def with_cache_fields(request: Request, field: str) -> Request:
    """The request with the hints of its texts as fields of this name; itself where there are none."""
    places = [
        (number, index)
        for number, message in enumerate(request.messages or ())
        for index, part in enumerate(message.parts)
        if isinstance(part, Text) and part.cache is not None
    ]
    if not places or request.messages is None:
        return request
    first = [place for place in places if request.messages[place[0]].role in (SYSTEM, DEVELOPER)][-_MAX_HINTS:]
    left = _MAX_HINTS - len(first)
    kept = {*first, *([place for place in places if place not in first][-left:] if left else [])}
    messages = tuple([_marked(message, number, kept, field) for number, message in enumerate(request.messages)])
    return replace(request, messages=messages)


def _marked(message: Message, number: int, kept: set[tuple[int, int]], field: str) -> Message:
    if not any(place == number for place, _ in kept):
        return message
    parts = [_part(part, field) if (number, index) in kept else part for index, part in enumerate(message.parts)]
    return replace(message, parts=tuple(parts))


def _part(part: Part, field: str) -> Part:
    if not isinstance(part, Text) or part.cache is None:
        return part
    own = part.provider_data if part.provider_data is not None and part.provider_data.origin == CHAT else None
    if own is not None and field in own.fields:
        return part
    data = joined_data(own, ProviderData(CHAT, {field: _value(part.cache, field)}))
    return replace(part, provider_data=data)


def _value(hint: CacheHint, field: str) -> bytes:
    """OpenAI's lifetimes are others than Anthropic's, so one of those is left to its default."""
    if field == BREAKPOINT:
        return b'{"mode":"explicit"}'
    return orjson.dumps({"type": "ephemeral"} if hint.ttl is None else {"type": "ephemeral", "ttl": hint.ttl})
