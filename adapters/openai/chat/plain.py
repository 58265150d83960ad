"""Chat bodies as nearly all of them come: plain messages, and no fields but the usual ones, decoded in one step.

What has anything else in it, or anything wrong, goes the general way, field by field (`adapters.openai.chat.parse`).
Both give the same request; neither is seen from outside.
"""

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from adapters.canonical.request import Request, Sampling
from adapters.field_types import Fraction, Name, Penalty, Positive, ShortText, Temperature
from adapters.openai.plain_messages import PlainMessages, told_plainly
from adapters.openai.vocabulary import CHAT, Seed

__all__ = ["DEPTH", "plain_chat"]

DEPTH = 4
"""No plain body is nested deeper."""
_LONGEST = 16_384
"""Bytes: a longer one has most likely tools in it, and would be decoded for nothing."""


class _StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None


class _Body(Struct, forbid_unknown_fields=True):
    model: Name
    messages: PlainMessages
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    temperature: Temperature | None = None
    top_p: Fraction | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Seed | None = None
    user: ShortText | None = None


_decode = Decoder(_Body).decode


def plain_chat(raw: bytes) -> Request | None:
    """None: it has to be read the general way."""
    if len(raw) > _LONGEST:
        return None
    try:
        found = _decode(raw)
    except DecodeError:
        return None
    options = found.stream_options
    if options is not None and not found.stream:
        return None
    longest = found.max_completion_tokens
    return Request(
        model=found.model,
        dialect=CHAT,
        stream=found.stream is True,
        include_usage=options is not None and options.include_usage is True,
        messages=told_plainly(found.messages),
        sampling=Sampling(
            temperature=found.temperature,
            top_p=found.top_p,
            presence_penalty=found.presence_penalty,
            frequency_penalty=found.frequency_penalty,
            seed=found.seed,
        ),
        max_tokens=found.max_tokens if longest is None else longest,
        user=found.user,
    )
