"""What both OpenAI surfaces share in a request body: the field table, stop, logit_bias, stream_options, extras."""

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from msgspec import Meta
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import (
    ReasoningOptions,
    Request,
    Sampling,
    TemplateOptions,
)
from adapters.field_types import BOOL, NAME, TEXT
from adapters.json_fields import JsonObject
from adapters.openai.vocabulary import SPELLINGS, FieldTable, TokenId
from adapters.raw_json import add_missing
from adapters.tool_names import Ids

__all__ = [
    "LOGIT_BIAS",
    "add_extras",
    "build_request",
    "client_field",
    "field_values",
    "shorten",
    "stop_and_bias",
    "stream_options",
    "take_limit",
    "take_model",
    "take_shared",
]

_STOP = Decoder(str | Annotated[list[str], Meta(max_length=64)])
_Bias = Annotated[int, Meta(ge=-100, le=100)] | Annotated[float, Meta(ge=-100, le=100)]
LOGIT_BIAS = Decoder(dict[TokenId, _Bias])
_SAMPLING_DEFAULT = Sampling()
_NO_LIMIT = b"-1"
_APART = frozenset(("stop", "logit_bias", "stream_options"))
_USER_IDS = ("user", "safety_identifier", "prompt_cache_key")


def take_model(body: JsonObject) -> str:
    return body.require("model", NAME)


def take_shared(body: JsonObject, table: FieldTable) -> dict[str, dict[str, Any]]:
    """The values of all fields in the table, by group; "" holds fields of the request itself."""
    groups: dict[str, dict[str, Any]] = {"": {}, "sampling": {}, "reasoning": {}, "template": {}}
    by_wire = table.by_wire
    for wire in body.names():
        field = by_wire.get(wire)
        if field is not None:
            value = body.take(wire, field.decoder)
            if value is not None:
                groups[field.group][field.name] = _frozen(value)
    groups[""]["stream"] = body.take("stream", BOOL) or False
    if body.has_any(_APART):
        _take_stop(body, groups["sampling"])
        bias = body.take("logit_bias", LOGIT_BIAS)
        if bias:
            groups["sampling"]["logit_bias"] = bias
        _take_stream_options(body, groups[""])
    n, best_of = groups[""].get("n", 1), groups[""].get("best_of")
    if best_of is not None and best_of < n:
        raise InvalidRequest.at("best_of", f"must not be less than n ({n})")
    return groups


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return value


def _take_stop(body: JsonObject, sampling: dict[str, Any]) -> None:
    stop = body.take("stop", _STOP)
    if stop is None:
        return
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if "" in stops:
        raise InvalidRequest.at("stop", "a stop string must not be empty")
    if stops:
        sampling["stop"] = stops


def _take_stream_options(body: JsonObject, values: dict[str, Any]) -> None:
    options = body.take_object("stream_options")
    if options is None:
        return
    if not values["stream"]:
        raise InvalidRequest.at("stream_options", "allowed only with stream: true")
    values["include_usage"] = options.take("include_usage", BOOL) or False
    values["continuous_usage"] = options.take("continuous_usage_stats", BOOL) or False
    if options.take("include_obfuscation", BOOL):  # false is what every answer of the gateway is
        values["include_obfuscation"] = True
    options.take("reasoning_summary_delivery", TEXT)  # when they come; here each piece at once, and each part whole too
    if values["continuous_usage"] and not values["include_usage"]:
        raise InvalidRequest.at("stream_options.continuous_usage_stats", "allowed only with include_usage: true")
    options.refuse_rest()


def take_limit(body: JsonObject, name: str, decoder: Decoder[int]) -> tuple[int | None, bool]:
    """A limit of tokens, and whether the answer is to have none: -1, as clients of LM Studio and llama.cpp say it."""
    if body.peek_raw(name) != _NO_LIMIT:
        return body.take(name, decoder), False
    body.take_raw(name)
    return None, True


def build_request(body: JsonObject, dialect: str, groups: dict[str, dict[str, Any]], **values: Any) -> Request:
    """The Request of all that was taken; what is left of the body are its extras."""
    sampling, reasoning, template = groups["sampling"], groups["reasoning"], groups["template"]
    return Request(
        dialect=dialect,
        sampling=Sampling(**sampling) if sampling else _SAMPLING_DEFAULT,
        reasoning=ReasoningOptions(**reasoning) if reasoning else None,
        template=TemplateOptions(**template) if template else None,
        extras=body.rest(),
        **groups[""],
        **values,
    )


def field_values(request: Request, table: FieldTable) -> dict[str, Any]:
    """The set fields of the table as JSON values by wire name."""
    found: dict[str, Any] = {}
    for group, read, wires in table.groups:
        holder = getattr(request, group) if group else request
        values = () if holder is None else read(holder)
        if values.count(None) < len(values):
            found.update({wire: value for wire, value in zip(wires, values, strict=False) if value is not None})
    for wire, value in found.items():
        if isinstance(value, bytes):
            found[wire] = orjson.Fragment(value)
    return found


def shorten(body: dict[str, Any], ids: Ids) -> None:
    """Writes names of users, and keys of caches, in a body as the upstream allows them: they only tell users apart."""
    for name in _USER_IDS:
        value = body.get(name)
        if isinstance(value, str) and value:
            body[name] = ids.sent(value)


def client_field(name: str, table: FieldTable) -> str:
    """OpenAI's spelling of a canonical field name."""
    field = table.by_name.get(name)
    return field.wire if field is not None else SPELLINGS.get(name, name)


def stop_and_bias(request: Request) -> dict[str, Any]:
    """The stop strings and the logit bias as JSON values; JSON has text keys only."""
    found: dict[str, Any] = {}
    sampling = request.sampling
    if sampling.stop is not None:
        found["stop"] = sampling.stop
    if sampling.logit_bias is not None:
        found["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    return found


def stream_options(request: Request) -> dict[str, Any]:
    """What is asked of an upstream's stream: usage always, for the gateway's own books."""
    options: dict[str, Any] = {"include_usage": True}
    if request.continuous_usage:
        options["continuous_usage_stats"] = True
    if request.include_obfuscation:
        options["include_obfuscation"] = True
    return options


def add_extras(body: dict[str, Any], request: Request, dialect: str, defaults: Mapping[str, bytes]) -> None:
    """The client's unmapped fields, where it spoke this dialect (law 8: the router refuses the others by name), then
    the vendor's defaults."""
    extras = request.extras if request.dialect == dialect else {}
    add_missing(body, extras)
    add_missing(body, defaults)
