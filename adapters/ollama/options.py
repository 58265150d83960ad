"""`options`, `format` and what else stands beside the prompt, both ways."""

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.request import OutputFormat, Request, Sampling
from adapters.field_types import BOOL, RAW_OBJECT, TEXT, TOP_LOGPROBS
from adapters.json_fields import JsonObject
from adapters.ollama.vocabulary import OPTIONS, Whole
from adapters.raw_json import add_missing

__all__ = ["format_value", "options_object", "take_format", "take_logprobs", "take_options"]

_PREFIX = "options."
_LIMIT = Whole(ge=-2, le=2**31 - 1)
_UNLIMITED = -1
_STOP = Decoder(str | list[str])
_NO_SAMPLING = Sampling()


def take_options(body: JsonObject) -> tuple[Sampling, int | None, dict[str, bytes]]:
    """The sampling, the limit of tokens, and the options that we do not map, as `options.name`."""
    options = body.take_object("options")
    if options is None:
        return _NO_SAMPLING, None, {}
    found: dict[str, Any] = {option.name: options.take(option.wire, option.decoder) for option in OPTIONS}
    stop = options.take("stop", _STOP)
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if "" in stops:
        raise InvalidRequest.at("options.stop", "a stop string must not be empty")
    found["stop"] = stops or None
    limit = options.take("num_predict", _LIMIT)
    rest = {f"{_PREFIX}{name}": raw for name, raw in options.said().items()}
    if limit is not None and limit < _UNLIMITED:
        rest[f"{_PREFIX}num_predict"] = b"%d" % limit  # fills the window
    known = {name: value for name, value in found.items() if value is not None}
    sampling = Sampling(**known) if known else _NO_SAMPLING
    return sampling, None if limit is None or limit < 0 else limit, rest


def take_format(body: JsonObject) -> OutputFormat | None:
    """`json`, or a schema as it came; "" is no format."""
    raw = body.peek_raw("format")
    if raw is not None and raw.startswith(b"{"):
        return OutputFormat(kind="json_schema", schema=body.take("format", RAW_OBJECT))
    word = body.take("format", TEXT)
    if not word:
        return None
    if word != "json":
        raise InvalidRequest.at("format", f"expected json or a schema, got {word[:40]}")
    return OutputFormat(kind="json_object")


def take_logprobs(body: JsonObject) -> int | None:
    """The number of alternatives counts only where logprobs are wanted at all."""
    wanted = body.take("logprobs", BOOL)
    top = body.take("top_logprobs", TOP_LOGPROBS)
    return (top or 0) if wanted else None


def options_object(request: Request, extras: Mapping[str, bytes], defaults: Mapping[str, bytes]) -> dict[str, Any]:
    """`defaults` are raw options that are sent where the request has none."""
    sampling = request.sampling
    found: dict[str, Any] = {}
    for option in OPTIONS:
        value = getattr(sampling, option.name)
        if value is not None:
            found[option.wire] = value
    if request.max_tokens is not None:
        found["num_predict"] = request.max_tokens
    if sampling.stop:
        found["stop"] = sampling.stop
    for name, raw in extras.items():
        if name.startswith(_PREFIX):
            found[name.removeprefix(_PREFIX)] = orjson.Fragment(raw)
    add_missing(found, defaults)
    return found


def format_value(wanted: OutputFormat) -> Any:
    if wanted.kind == "json_object" or (wanted.kind == "json_schema" and wanted.schema is None):
        return "json"
    if wanted.kind != "json_schema" or wanted.schema is None:
        raise UnsupportedParameter.at("response_format", f"Ollama has no format {wanted.kind}")
    return orjson.Fragment(wanted.schema)
