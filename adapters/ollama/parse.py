"""Bodies of /api/chat and /api/generate as Requests. A stream is the default."""

from collections.abc import Mapping
from typing import Any

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import SYSTEM, USER, Image, MediaSource, Message, Part, Text
from adapters.canonical.request import Request
from adapters.field_types import BOOL, NAME, TEXT, TEXTS
from adapters.inline_media import resolved
from adapters.json_fields import JsonObject, parse_object
from adapters.ollama.content import take_messages
from adapters.ollama.durations import take_keep_alive
from adapters.ollama.options import take_format, take_logprobs, take_options
from adapters.ollama.thinking import take_thinking
from adapters.ollama.tools import take_tools
from adapters.ollama.vocabulary import CHAT, GENERATE, SAYS_NOTHING

__all__ = ["parse_chat", "parse_generate"]

_NO_MORE: Mapping[str, bytes] = {}


def parse_chat(raw: bytes, *, max_depth: int) -> Request:
    """Raises InvalidRequest, naming the path."""
    body = parse_object(raw, max_depth=max_depth)
    return _request(body, CHAT, messages=take_messages(body), tools=take_tools(body))


def parse_generate(raw: bytes, *, max_depth: int) -> Request:
    """A prompt becomes what a user says, unless no template is to touch it or it is to be filled in.

    Raises InvalidRequest, naming the path.
    """
    body = parse_object(raw, max_depth=max_depth)
    prompt = body.take("prompt", TEXT) or ""
    suffix = body.take("suffix", TEXT) or None
    if not prompt and suffix is None:
        raise InvalidRequest.at("prompt", "this field is required")
    raw_prompt = body.take("raw", BOOL)
    if suffix is not None:
        return _request(body, GENERATE, {"raw": b"true"} if raw_prompt else {}, prompts=(prompt,), suffix=suffix)
    if raw_prompt:
        return _request(body, GENERATE, prompts=(prompt,))
    system = body.take("system", TEXT)
    images: list[Part] = [Image(source=resolved(MediaSource(data=data))) for data in body.take("images", TEXTS) or ()]
    said = Message(role=USER, parts=(Text(text=prompt), *images))
    instruction = (Message(role=SYSTEM, parts=(Text(text=system),)),) if system else ()
    return _request(body, GENERATE, messages=(*instruction, said))


def _request(body: JsonObject, dialect: str, more: Mapping[str, bytes] = _NO_MORE, **values: Any) -> Request:
    """`more` are unmapped fields that were taken."""
    model = body.require("model", NAME)
    sampling, max_tokens, options = take_options(body)
    stream = body.take("stream", BOOL)
    output_format = take_format(body)
    logprobs = take_logprobs(body)
    reasoning = take_thinking(body)
    keep_alive_s = take_keep_alive(body)
    rest = {name: raw for name, raw in body.rest().items() if raw not in SAYS_NOTHING}
    return Request(
        model=model,
        dialect=dialect,
        stream=True if stream is None else stream,
        include_usage=True,
        sampling=sampling,
        max_tokens=max_tokens,
        open_ended=True,
        output_format=output_format,
        logprobs=logprobs,
        reasoning=reasoning,
        keep_alive_s=keep_alive_s,
        extras={**rest, **more, **options},
        **values,
    )
