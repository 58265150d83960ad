"""`generationConfig`, both ways: one table of the fields that map one to one, and the form of the answer."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import orjson
from msgspec import Meta, Struct
from msgspec.json import Decoder

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.request import OutputFormat, ReasoningOptions, Request, Sampling
from adapters.field_types import BOOL, COUNT, FRACTION, PENALTY, RAW_OBJECT, TEMPERATURE, TEXT, TEXTS, TOP_LOGPROBS
from adapters.gemini.schemas import json_schema_of
from adapters.gemini.thinking import take_thinking, thinking_object
from adapters.gemini.vocabulary import CANDIDATES, GEMINI, SEED, STOPS, TOP_K
from adapters.gemini.wire_objects import take_object
from adapters.json_fields import Decodes, JsonObject
from adapters.raw_json import add_missing

__all__ = ["CONFIG", "config_object", "take_config"]

CONFIG = "generationConfig"
_JSON = "application/json"
_PLAIN = "text/plain"
_ENUM = "text/x.enum"
_SCHEMAS = ("responseJsonSchema", "responseSchema")
_NO_SAMPLING = Sampling()


class _Listed(Struct):
    enum: Annotated[tuple[str, ...], Meta(min_length=1)]


_LISTED = Decoder(_Listed)


class _Field(NamedTuple):
    wire: str
    name: str
    decoder: Decodes[Any]


_SAMPLING = (
    _Field("temperature", "temperature", TEMPERATURE),
    _Field("topP", "top_p", FRACTION),
    _Field("seed", "seed", SEED),
    _Field("presencePenalty", "presence_penalty", PENALTY),
    _Field("frequencyPenalty", "frequency_penalty", PENALTY),
)


def take_config(body: JsonObject) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Values of the Request by name, and the fields that we do not map, as `generationConfig.name`."""
    config = take_object(body, CONFIG)
    if config is None:
        return {}, {}
    reasoning: ReasoningOptions | None = take_thinking(config)
    modalities = config.take("responseModalities", TEXTS)
    values: dict[str, Any] = {
        "sampling": _take_sampling(config),
        "max_tokens": config.take("maxOutputTokens", COUNT),
        "n": config.take("candidateCount", CANDIDATES),
        "logprobs": _take_logprobs(config),
        "reasoning": reasoning,
        "output_format": _take_format(config),
        "modalities": tuple([word.lower() for word in modalities]) if modalities else None,
    }
    return values, {f"{CONFIG}.{name}": raw for name, raw in config.said().items()}


def _take_sampling(config: JsonObject) -> Sampling:
    found = {field.name: config.take(field.wire, field.decoder) for field in _SAMPLING}
    top_k = config.take("topK", TOP_K)
    found["top_k"] = None if top_k is None else int(top_k)
    found["stop"] = tuple(config.take("stopSequences", STOPS) or ()) or None
    known = {name: value for name, value in found.items() if value is not None}
    return Sampling(**known) if known else _NO_SAMPLING


def _take_logprobs(config: JsonObject) -> int | None:
    """The number of alternatives counts only where logprobs are wanted at all."""
    wanted = config.take("responseLogprobs", BOOL)
    top = config.take("logprobs", TOP_LOGPROBS)
    return (top or 0) if wanted else None


def _take_format(config: JsonObject) -> OutputFormat | None:
    """JSON, with a schema or without, or one of some texts. A format of another media type, and its schema, stay
    unmapped."""
    media_type = config.peek_raw("responseMimeType")
    if media_type == b'"%b"' % _ENUM.encode():
        return _take_choice(config)
    if media_type not in (None, b"null", b'"%b"' % _JSON.encode(), b'"%b"' % _PLAIN.encode()):
        return None
    word = config.take("responseMimeType", TEXT)
    schema = config.take(_SCHEMAS[0], RAW_OBJECT)
    older = config.take(_SCHEMAS[1], RAW_OBJECT)
    if schema is not None:
        return OutputFormat(kind="json_schema", schema=schema)
    if older is not None:
        return OutputFormat(kind="json_schema", schema=json_schema_of(older, config.at(_SCHEMAS[1])), raw=older)
    return OutputFormat(kind="json_object") if word == _JSON else None


def _take_choice(config: JsonObject) -> OutputFormat | None:
    """The texts of an enum, which its schema lists."""
    raw = config.peek_raw(_SCHEMAS[1])
    listed = config.take_if(_SCHEMAS[1], _LISTED)
    if listed is None:
        return None
    config.take("responseMimeType", TEXT)
    return OutputFormat(kind="choice", choices=listed.enum, path=config.at(f"{_SCHEMAS[1]}.enum"), raw=raw)


def config_object(request: Request, defaults: Mapping[str, bytes]) -> dict[str, Any]:
    """`defaults` are raw fields of the config that are sent where the request has none."""
    found: dict[str, Any] = {}
    sampling = request.sampling
    for field in _SAMPLING:
        value = getattr(sampling, field.name)
        if value is not None:
            found[field.wire] = value
    if sampling.top_k is not None:
        found["topK"] = sampling.top_k
    if sampling.stop:
        found["stopSequences"] = sampling.stop
    if request.max_tokens is not None:
        found["maxOutputTokens"] = request.max_tokens
    if request.logprobs is not None:
        found["responseLogprobs"] = True
        if request.logprobs:
            found["logprobs"] = request.logprobs
    if request.modalities is not None:
        found["responseModalities"] = [word.upper() for word in request.modalities]
    _add_format(found, request)
    thinking = thinking_object(request)
    if thinking is not None:
        found["thinkingConfig"] = thinking
    if request.dialect == GEMINI:
        prefix = CONFIG + "."
        for name, raw in request.extras.items():
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = orjson.Fragment(raw)
    add_missing(found, defaults)
    return found


def _add_format(found: dict[str, Any], request: Request) -> None:
    wanted = request.output_format
    if wanted is None:
        return
    if wanted.kind == "choice":
        found["responseMimeType"] = _ENUM
        own = orjson.Fragment(wanted.raw) if wanted.raw is not None and request.dialect == GEMINI else None
        found[_SCHEMAS[1]] = own or {"type": "STRING", "enum": wanted.choices}
        return
    if wanted.kind not in ("json_object", "json_schema"):
        raise UnsupportedParameter.at("response_format", f"Gemini has no format {wanted.kind}")
    found["responseMimeType"] = _JSON
    if wanted.raw is not None and request.dialect == GEMINI:
        found[_SCHEMAS[1]] = orjson.Fragment(wanted.raw)
    elif wanted.schema is not None:
        found[_SCHEMAS[0]] = orjson.Fragment(wanted.schema)
