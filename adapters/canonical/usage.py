"""Token counts and token logprobs. Missing is None, never 0."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import fields, force_setattr, replace

__all__ = [
    "MAX_COUNT",
    "MIN_LOGPROB",
    "PROMPT_COUNTS",
    "TokenLogprob",
    "TopLogprob",
    "Usage",
    "floor_logprob",
    "summed",
    "tier_of",
    "usage_of_turns",
]

MAX_COUNT = 2**53
"""The largest number of tokens that a client can read exactly."""
MIN_LOGPROB = -9999.0
"""What stands for minus infinity, which JSON cannot hold."""


class TopLogprob(Struct, frozen=True, gc=False):
    """An alternative. `text` is a printable stand-in, `raw` the token's true bytes (None: not reported)."""

    text: str
    logprob: float
    token_id: int | None = None
    raw: bytes | None = None


class TokenLogprob(Struct, frozen=True, gc=False):
    """One emitted token. `logprob` is None only for the first token of a prompt, `rank` told only of the others."""

    text: str
    logprob: float | None
    token_id: int | None = None
    raw: bytes | None = None
    top: tuple[TopLogprob, ...] = ()
    rank: int | None = None

    @property
    def num_characters(self) -> int:
        """How many characters begin in this token: a UTF-8 continuation byte begins none."""
        if self.raw is None:
            return len(self.text)
        return sum(1 for byte in self.raw if byte & 0xC0 != 0x80)


class Usage(Struct, frozen=True, kw_only=True):
    """Inclusive totals: cached and cache-write tokens are part of the prompt, reasoning tokens of the completion."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    """Of those that went into a cache: kept for an hour, which costs more."""
    prompt_audio_tokens: int | None = None
    prompt_image_tokens: int | None = None
    prompt_text_tokens: int | None = None
    reasoning_tokens: int | None = None
    completion_audio_tokens: int | None = None
    completion_text_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None
    estimated: bool = False
    """Counted by the gateway, because the upstream did not report."""
    tier: str | None = None
    """The tier at which the answer was made, as `tier_of` tells it."""
    turns: "tuple[Usage, ...]" = ()
    """What each turn used, where the gateway asked the model several times for one answer; the totals are sums."""

    def __post_init__(self) -> None:
        """A number that no count can be is None: some upstreams say -1 of what they do not know."""
        bits = (  # of all together, which tell in half the time of a loop whether one is negative or too large
            (self.prompt_tokens or 0)
            | (self.completion_tokens or 0)
            | (self.cached_tokens or 0)
            | (self.cache_write_tokens or 0)
            | (self.cache_write_1h_tokens or 0)
            | (self.prompt_audio_tokens or 0)
            | (self.prompt_image_tokens or 0)
            | (self.prompt_text_tokens or 0)
            | (self.reasoning_tokens or 0)
            | (self.completion_audio_tokens or 0)
            | (self.completion_text_tokens or 0)
            | (self.accepted_prediction_tokens or 0)
            | (self.rejected_prediction_tokens or 0)
        )
        if not 0 <= bits < MAX_COUNT:
            for name in _COUNTS:
                count = getattr(self, name)
                if count is not None and not 0 <= count <= MAX_COUNT:
                    force_setattr(self, name, None)

    @property
    def total_tokens(self) -> int | None:
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)


_STANDARD_TIERS = frozenset(("", "auto", "default", "standard", "standard_only"))
_COUNTS = tuple(field.name for field in fields(Usage) if field.name not in ("estimated", "tier", "turns"))
PROMPT_COUNTS = tuple(name for name in _COUNTS if name.startswith(("prompt_", "cache")))
"""Those of the prompt, which all choices of one answer share."""


def tier_of(word: object) -> str | None:
    """What an upstream says of the tier of an answer; None for that at which all are made that ask for none."""
    return word.lower() if isinstance(word, str) and word not in _STANDARD_TIERS else None


def summed(usages: Sequence[Usage]) -> Usage:
    """All together. What none of them tells stays None."""
    totals: dict[str, Any] = {}
    for name in _COUNTS:
        told = [count for usage in usages if (count := getattr(usage, name)) is not None]
        totals[name] = sum(told) if told else None
    return Usage(**totals, estimated=any(usage.estimated for usage in usages))


def usage_of_turns(turns: Sequence[Usage]) -> Usage:
    """The sum of all turns of one answer, which are told beside it."""
    return turns[0] if len(turns) == 1 else replace(summed(turns), turns=tuple(turns))


def floor_logprob(value: float) -> float:
    """The logprob as JSON can hold it: minus infinity and NaN become MIN_LOGPROB."""
    return value if value >= MIN_LOGPROB else MIN_LOGPROB
