"""What a Response object says again of its request, and the defaults where the request is silent.

The object has the union of the keys that OpenAI and the Open Responses specification name; what the latter demands to
be there, and not null, always is.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec import Raw

from adapters.canonical.request import OutputFormat
from adapters.canonical.tool_kinds import FUNCTION, MCP
from adapters.json_fields import JsonObject
from adapters.raw_json import OBJECTS, fragments, raw_fields

__all__ = ["SAID_BY_US", "complete", "mirrored_fields", "mirrored_text"]

_NULL = b"null"
_DEFAULTS: Mapping[str, bytes] = {
    "background": b"false",
    "frequency_penalty": b"0.0",
    "instructions": _NULL,
    "max_output_tokens": _NULL,
    "max_tool_calls": _NULL,
    "metadata": b"{}",
    "parallel_tool_calls": b"true",
    "presence_penalty": b"0.0",
    "previous_response_id": _NULL,
    "prompt_cache_key": _NULL,
    "prompt_cache_retention": _NULL,
    "reasoning": _NULL,
    "safety_identifier": _NULL,
    "service_tier": b'"default"',
    "store": b"false",
    "temperature": b"1.0",
    "text": b'{"format":{"type":"text"}}',
    "tool_choice": b'"auto"',
    "tools": b"[]",
    "top_logprobs": b"0",
    "top_p": b"1.0",
    "truncation": b'"disabled"',
    "user": _NULL,
}
_ONLY_IF_SET = ("access_programs", "image", "prompt", "prompt_cache_options")
_AS_THEY_CAME = frozenset((*_DEFAULTS, *_ONLY_IF_SET)) - {"text", "store", "background"}
SAID_BY_US = frozenset(
    (
        *(set(_DEFAULTS) - {"service_tier"}),
        *_ONLY_IF_SET,
        *("id", "object", "created_at", "completed_at", "status", "model", "output", "usage", "error"),
        *("incomplete_details", "conversation", "output_text"),
    )
)
"""Fields of a response that the gateway states itself, whatever an upstream says there."""
_AUTO_TIER = b'"auto"'
_TOOL_KEYS = ("description", "parameters", "strict")
_CREDENTIALS = ("authorization", "headers")
_REASONING_KEYS = ("effort", "summary")


def mirrored_fields(body: JsonObject) -> dict[str, bytes]:
    """The fields as raw JSON, read before anybody takes them. Their types are checked by who takes them."""
    found = dict(_DEFAULTS)
    for name in body.names():
        if name in _AS_THEY_CAME and (raw := body.peek_raw(name)) != _NULL and raw is not None:
            found[name] = raw
    if found["service_tier"] == _AUTO_TIER:
        found["service_tier"] = _DEFAULTS["service_tier"]
    return found


def complete(found: dict[str, bytes]) -> None:
    """Puts the keys that the specification wants into tools and reasoning, once their types are known to be right."""
    found["tools"] = orjson.dumps([_tool(tool) for tool in OBJECTS.decode(found["tools"])])
    if found["reasoning"] != _NULL:
        fields = fragments(raw_fields(found["reasoning"]))
        found["reasoning"] = orjson.dumps({**dict.fromkeys(_REASONING_KEYS), **fields})


def mirrored_text(wanted: OutputFormat | None, verbosity: str | None) -> bytes:
    """`text`: the format as it came, with the fields that the specification wants to see."""
    form: dict[str, Any] = {"type": "text"}
    if wanted is not None:
        form = fragments(raw_fields(wanted.raw or b"{}"))
        if wanted.kind == "json_schema":
            form = {"description": None, "schema": None, "strict": False, **form}
    return orjson.dumps({"format": form} if verbosity is None else {"format": form, "verbosity": verbosity})


def _tool(fields: dict[str, Raw]) -> dict[str, Any]:
    found = fragments(fields)
    kind = bytes(fields.get("type", Raw(_NULL)))
    if kind == b'"%b"' % FUNCTION.encode():
        return {**found, **{name: found.get(name) for name in _TOOL_KEYS}}
    if kind == b'"%b"' % MCP.encode():  # its credentials are said to nobody, and kept nowhere
        return {name: value for name, value in found.items() if name not in _CREDENTIALS}
    return found
