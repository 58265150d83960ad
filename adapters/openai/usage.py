"""OpenAI's usage object, both ways."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from msgspec import Struct

from adapters.canonical.usage import Usage, tier_of
from adapters.raw_json import add_missing

__all__ = ["USAGE", "ChunkUsage", "WireUsage", "parse_usage", "usage_object"]

USAGE = "usage"


class _PromptDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    audio_tokens: int | None = None
    image_tokens: int | None = None
    text_tokens: int | None = None


class _CompletionDetails(Struct):
    reasoning_tokens: int | None = None
    audio_tokens: int | None = None
    text_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class WireUsage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek
    cached_tokens: int | None = None  # Moonshot
    reasoning_tokens: int | None = None  # SGLang
    total_tokens: Any = None


class ChunkUsage(WireUsage, forbid_unknown_fields=True):
    """The usage of a chunk or body, whose other fields are passed on."""


_NO_PROMPT_DETAILS = _PromptDetails()
_NO_COMPLETION_DETAILS = _CompletionDetails()


def _details(name: str, **fields: str) -> tuple[str, Callable[[Usage], tuple[int | None, ...]], tuple[str, ...]]:
    """An object of details: its name, what reads its values, and their keys. `fields` are ours by theirs."""
    return name, attrgetter(*fields.values()), tuple(fields)


_DETAILS = (
    _details(
        "prompt_tokens_details",
        cached_tokens="cached_tokens",
        cache_write_tokens="cache_write_tokens",
        audio_tokens="prompt_audio_tokens",
        image_tokens="prompt_image_tokens",
        text_tokens="prompt_text_tokens",
    ),
    _details(
        "completion_tokens_details",
        reasoning_tokens="reasoning_tokens",
        audio_tokens="completion_audio_tokens",
        text_tokens="completion_text_tokens",
        accepted_prediction_tokens="accepted_prediction_tokens",
        rejected_prediction_tokens="rejected_prediction_tokens",
    ),
)


def parse_usage(found: WireUsage, tier: object = None) -> Usage:
    """`tier` is the upstream's word for that of the answer."""
    prompt = found.prompt_tokens_details or _NO_PROMPT_DETAILS
    completion = found.completion_tokens_details or _NO_COMPLETION_DETAILS
    cached = found.prompt_cache_hit_tokens if prompt.cached_tokens is None else prompt.cached_tokens
    thought = found.reasoning_tokens if completion.reasoning_tokens is None else completion.reasoning_tokens
    return Usage(
        prompt_tokens=found.prompt_tokens,
        completion_tokens=_with_thoughts(found, thought),
        cached_tokens=found.cached_tokens if cached is None else cached,
        cache_write_tokens=prompt.cache_write_tokens,
        prompt_audio_tokens=prompt.audio_tokens,
        prompt_image_tokens=prompt.image_tokens,
        prompt_text_tokens=prompt.text_tokens,
        reasoning_tokens=thought,
        completion_audio_tokens=completion.audio_tokens,
        completion_text_tokens=completion.text_tokens,
        accepted_prediction_tokens=completion.accepted_prediction_tokens,
        rejected_prediction_tokens=completion.rejected_prediction_tokens,
        tier=None if tier is None else tier_of(tier),
    )


def _with_thoughts(found: WireUsage, thought: int | None) -> int | None:
    """The whole completion. xAI, and Gemini's API of this dialect, leave out of it what the model thought, which the
    total has (Gemini says nothing else of it)."""
    prompt, completion, total = found.prompt_tokens, found.completion_tokens, found.total_tokens
    if not isinstance(total, int) or prompt is None or completion is None:
        return completion
    missing = total - prompt - completion
    return completion + missing if missing > 0 and (not thought or missing == thought) else completion


def usage_object(usage: Usage, more: Mapping[str, bytes] | None = None) -> dict[str, Any]:
    """Totals are always numbers (OpenAI's type demands it); details appear where something is known.

    `more` are fields of an upstream of this dialect, which speak of one turn.
    """
    found: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens or 0,
        "completion_tokens": usage.completion_tokens or 0,
        "total_tokens": usage.total_tokens or 0,
    }
    for name, read, keys in _DETAILS:
        values = read(usage)
        if values.count(None) < len(values):
            found[name] = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
    if usage.estimated:
        found["estimated"] = True
    if more and len(usage.turns) < 2:
        add_missing(found, more)
    return found
