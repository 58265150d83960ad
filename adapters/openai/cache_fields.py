"""Cache hints as the fields that chat servers take on parts of content, four at most: the system's, then the newest.

`cache_control` is how Anthropic's hints are written by servers that pass them on, `prompt_cache_breakpoint` is OpenAI's
own. A client may have written either: a server gets the one that it knows, as the client wrote it where that is it.
"""

from collections.abc import Mapping

import orjson
from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from adapters.canonical.messages import DEVELOPER, SYSTEM, CacheHint, Part, ProviderData, Text
from adapters.canonical.request import Request
from adapters.json_fields import JsonObject, decode_at
from adapters.openai.vocabulary import CHAT

__all__ = ["BREAKPOINT", "CACHE_CONTROL", "cache_hint", "with_cache_fields"]

BREAKPOINT = "prompt_cache_breakpoint"
CACHE_CONTROL = "cache_control"
_MAX_HINTS = 4


class _Breakpoint(Struct):
    ttl: str | None = None


_BREAKPOINT = Decoder(_Breakpoint)


def cache_hint(holder: JsonObject) -> CacheHint | None:
    """What `prompt_cache_breakpoint` (OpenAI) or `cache_control` (as many chat clients say it) of a part, a message or
    a tool tells other dialects.

    The field stays where it is. A time that only OpenAI knows counts as an hour.
    """
    for name in (BREAKPOINT, CACHE_CONTROL):
        raw = holder.peek_raw(name)
        if raw is not None and raw != b"null":
            ttl = decode_at(raw, _BREAKPOINT, holder.at(name)).ttl
            return CacheHint(ttl=ttl if ttl in (None, "5m") else "1h")
    return None


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
    messages = list(request.messages)
    for number in {number for number, _ in places}:
        parts = [_part(part, field, (number, i) in kept) for i, part in enumerate(messages[number].parts)]
        messages[number] = replace(messages[number], parts=tuple(parts))
    return replace(request, messages=tuple(messages))


def _part(part: Part, field: str, is_kept: bool) -> Part:
    if not isinstance(part, Text) or part.cache is None:
        return part
    own: Mapping[str, bytes] = {}
    if part.provider_data is not None and part.provider_data.origin == CHAT:
        own = part.provider_data.fields
    fields = {name: raw for name, raw in own.items() if name not in (BREAKPOINT, CACHE_CONTROL)}
    if is_kept:
        fields[field] = own.get(field) or _value(part.cache, field)
    return replace(part, provider_data=ProviderData(CHAT, fields) if fields else None)


def _value(hint: CacheHint, field: str) -> bytes:
    """OpenAI's lifetimes are others than Anthropic's, so one of those is left to its default."""
    if field == BREAKPOINT:
        return b'{"mode":"explicit"}'
    return orjson.dumps({"type": "ephemeral"} if hint.ttl is None else {"type": "ephemeral", "ttl": hint.ttl})
