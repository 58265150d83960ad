"""Bodies of /completion and /infill as Requests. A model need not be named, and an answer has no length by itself."""

from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.request import Request
from adapters.field_types import TEXT, TEXTS, TOP_LOGPROBS
from adapters.json_fields import JsonObject, parse_object
from adapters.llamacpp.vocabulary import FIELDS, LLAMACPP, RESPONSE_FIELDS
from adapters.openai.prompts import take_prompts
from adapters.openai.request_fields import build_request, take_shared
from adapters.openai.response_format import only_format
from adapters.openai.vocabulary import TokenId
from adapters.sampler_fields import SAMPLER_ORDER, has_temperature_last

__all__ = ["parse_completion", "parse_infill"]

_LIMIT = Decoder(Annotated[int, Meta(ge=-2, le=2**31 - 1)])
_BIASES = Decoder(list[tuple[TokenId, float | bool]])
"""The form of `logit_bias` beside OpenAI's: pairs; false is never."""
_NEVER = -100.0


class _Extra(Struct):
    """Another file, or a piece of one, for the model to know of."""

    text: str = ""
    filename: str = ""


_EXTRAS = Decoder(list[_Extra])


def parse_completion(raw: bytes, *, max_depth: int) -> Request:
    """Raises InvalidRequest, naming the path."""
    body = parse_object(raw, max_depth=max_depth)
    prompts = take_prompts(body, "prompt")
    if len(prompts) > 1:
        raise InvalidRequest.at("prompt", "one prompt in a request")
    return _request(body, prompts=prompts)


def parse_infill(raw: bytes, *, max_depth: int) -> Request:
    """What stands between two texts is asked for. Before the first come the files that the client adds, each under a
    line with its name, then it and `prompt`, the beginning of the line. Raises InvalidRequest, naming the path."""
    body = parse_object(raw, max_depth=max_depth)
    extras = body.take("input_extra", _EXTRAS) or ()
    pieces = [f"\n\n--- {extra.filename or 'snippet'} ---\n\n{extra.text}" for extra in extras]
    if pieces:
        pieces.append("\n\n--- file ---\n\n")
    prefix, prompt = body.take("input_prefix", TEXT), body.take("prompt", TEXT)
    suffix = body.take("input_suffix", TEXT)
    return _request(body, prompts=("".join((*pieces, prefix or "", prompt or "")),), suffix=suffix or "")


def _request(body: JsonObject, **values: Any) -> Request:
    model = body.take("model", TEXT) or ""
    limit = body.take("n_predict", _LIMIT)
    logprobs = body.take("n_probs", TOP_LOGPROBS)
    shown = body.take(RESPONSE_FIELDS, TEXTS)
    output_format = only_format(body, None)
    biases = body.take_if("logit_bias", _BIASES)
    order = body.take("samplers", SAMPLER_ORDER)
    groups = take_shared(body, FIELDS)
    if order and has_temperature_last(order):
        groups["sampling"]["temperature_last"] = True
    if biases:
        groups["sampling"]["logit_bias"] = {token: _NEVER if bias is False else bias for token, bias in biases}
    return build_request(
        body,
        LLAMACPP,
        groups,
        model=model,
        max_tokens=None if limit is None or limit < 0 else limit,
        open_ended=True,
        include_usage=True,
        logprobs=logprobs or None,
        output_format=output_format,
        mirrored={} if shown is None else {RESPONSE_FIELDS: orjson.dumps(shown)},
        **values,
    )
