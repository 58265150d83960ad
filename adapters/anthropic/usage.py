"""Anthropic's usage object, both ways. Its input tokens leave out what came from the cache or went into it; ours are
inclusive."""

from typing import Any

from msgspec import Struct, ValidationError
from msgspec.json import Decoder
from msgspec.structs import asdict

from adapters.canonical.usage import Usage, tier_of
from adapters.raw_json import add_missing, raw_fields

__all__ = ["RunningUsage", "usage_object"]

_NULL = b"null"


class _Details(Struct):
    thinking_tokens: int | None = None


class _Counts(Struct):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: _Details | None = None
    cache_creation: Any = None
    service_tier: Any = None


_decode_counts = Decoder(_Counts, strict=False).decode  # a count may be written as 5.0, or as "5"
_KNOWN = frozenset(_Counts.__struct_fields__) - {
    "cache_creation",
    "service_tier",
}  # which clients of this dialect get as it came
_PROMPT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class RunningUsage:
    """The totals of one answer. Every report is cumulative: what it says replaces, what it leaves out stays.

    A prompt is never empty: where all counts of it are 0, as hosts of this dialect write at the end, they say nothing.
    A report that is no usage says nothing either.
    """

    __slots__ = ("_counts", "_rest")

    def __init__(self) -> None:
        self._counts: dict[str, Any] = {}
        self._rest: dict[str, bytes] = {}

    def update(self, raw: bytes) -> dict[str, bytes]:
        """Takes a usage object in. Gives its fields that we do not map, those that are new or changed."""
        try:
            counts = asdict(_decode_counts(raw))
        except ValidationError:
            return {}
        told = {name: value for name, value in counts.items() if value is not None}
        if not any(map(told.get, _PROMPT)):
            told = {name: value for name, value in told.items() if name not in _PROMPT or name not in self._counts}
        self._counts.update(told)
        found = {name: bytes(value) for name, value in raw_fields(raw).items() if name not in _KNOWN}
        news = {name: value for name, value in found.items() if value != _NULL and self._rest.get(name) != value}
        self._rest.update(news)
        return news

    def usage(self) -> Usage | None:
        """None where nothing was reported."""
        counts = self._counts
        if not counts:
            return None
        cached = counts.get("cache_read_input_tokens")
        written = counts.get("cache_creation_input_tokens")
        fresh = counts.get("input_tokens")
        known = [count for count in (fresh, cached, written) if count is not None and count >= 0]
        details: _Details | None = counts.get("output_tokens_details")
        lives = counts.get("cache_creation")
        for_an_hour = lives.get("ephemeral_1h_input_tokens") if isinstance(lives, dict) else None
        return Usage(
            prompt_tokens=sum(known) if known else None,
            completion_tokens=counts.get("output_tokens"),
            cached_tokens=cached,
            cache_write_tokens=written,
            cache_write_1h_tokens=for_an_hour if isinstance(for_an_hour, int) else None,
            reasoning_tokens=None if details is None else details.thinking_tokens,
            tier=tier_of(counts.get("service_tier")),
        )


def usage_object(usage: Usage | None, more: dict[str, bytes]) -> dict[str, Any]:
    """Totals are always numbers (the SDK's type demands it). `more` are fields of an upstream of this dialect."""
    usage = usage or Usage()
    prompt = usage.prompt_tokens or 0
    found: dict[str, Any] = {
        "input_tokens": max(0, prompt - (usage.cached_tokens or 0) - (usage.cache_write_tokens or 0)),
        "output_tokens": usage.completion_tokens or 0,
    }
    if usage.cache_write_tokens is not None:
        found["cache_creation_input_tokens"] = usage.cache_write_tokens
    if usage.cached_tokens is not None:
        found["cache_read_input_tokens"] = usage.cached_tokens
    if usage.reasoning_tokens is not None:
        found["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    add_missing(found, more)
    return found
