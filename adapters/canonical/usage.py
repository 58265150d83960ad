"""Token counts and token logprobs. Missing is None, never 0."""

from msgspec import Struct

__all__ = ["MIN_LOGPROB", "TokenLogprob", "TopLogprob", "Usage", "floor_logprob"]

MIN_LOGPROB = -9999.0
"""What stands for minus infinity, which JSON cannot hold."""


class TopLogprob(Struct, frozen=True, gc=False):
    """An alternative. `text` is a printable stand-in, `raw` the token's true bytes (None: not reported)."""

    text: str
    logprob: float
    token_id: int | None = None
    raw: bytes | None = None


class TokenLogprob(Struct, frozen=True, gc=False):
    """One emitted token. `logprob` is None only for the first token of a prompt."""

    text: str
    logprob: float | None
    token_id: int | None = None
    raw: bytes | None = None
    top: tuple[TopLogprob, ...] = ()


class Usage(Struct, frozen=True, kw_only=True):
    """Inclusive totals: cached and cache-write tokens are part of the prompt, reasoning tokens of the completion."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
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

    @property
    def total_tokens(self) -> int | None:
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)


def floor_logprob(value: float) -> float:
    """The logprob as JSON can hold it: minus infinity and NaN become MIN_LOGPROB."""
    return value if value >= MIN_LOGPROB else MIN_LOGPROB
