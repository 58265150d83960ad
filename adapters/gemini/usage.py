"""Gemini's usageMetadata, both ways. Its candidates leave out what the model thought; ours are inclusive."""

from typing import Annotated, Any

import orjson
from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import asdict

from adapters.canonical.usage import Usage

__all__ = ["RunningUsage", "usage_object"]

_Count = Annotated[int, Meta(ge=0, le=2**53)]
_NULL = b"null"


class _Share(Struct):
    """How many of the tokens are of one kind."""

    modality: str = ""
    tokenCount: _Count = 0  # noqa: N815  # the wire's name


class _Counts(Struct, rename="camel"):
    prompt_token_count: _Count | None = None
    tool_use_prompt_token_count: _Count | None = None
    cached_content_token_count: _Count | None = None
    candidates_token_count: _Count | None = None
    thoughts_token_count: _Count | None = None
    prompt_tokens_details: list[_Share] | None = None
    candidates_tokens_details: list[_Share] | None = None


_decode_counts = Decoder(_Counts).decode
_decode_fields = Decoder(dict[str, Raw]).decode
_KNOWN = frozenset((*_Counts.__struct_encode_fields__, "totalTokenCount"))


class RunningUsage:
    """The totals of one answer. A later report replaces an earlier one, but for what it leaves out."""

    __slots__ = ("_counts", "_last", "_rest")

    def __init__(self) -> None:
        self._counts: dict[str, Any] = {}
        self._rest: dict[str, bytes] = {}
        self._last = b""

    def update(self, raw: bytes) -> tuple[Usage | None, dict[str, bytes]]:
        """The totals with this report, None where they are as before, and fields that we do not map and are news."""
        if raw == self._last:
            return None, {}
        self._last = raw
        before = dict(self._counts)
        self._counts.update({name: value for name, value in asdict(_decode_counts(raw)).items() if value is not None})
        found = {name: bytes(value) for name, value in _decode_fields(raw).items() if name not in _KNOWN}
        news = {name: value for name, value in found.items() if value != _NULL and self._rest.get(name) != value}
        self._rest.update(news)
        return (self._usage() if self._counts != before else None), news

    def _usage(self) -> Usage:
        counts = self._counts
        prompt = _share(counts.get("prompt_tokens_details"))
        answer = _share(counts.get("candidates_tokens_details"))
        return Usage(
            prompt_tokens=_sum(counts.get("prompt_token_count"), counts.get("tool_use_prompt_token_count")),
            completion_tokens=_sum(counts.get("candidates_token_count"), counts.get("thoughts_token_count")),
            cached_tokens=counts.get("cached_content_token_count"),
            reasoning_tokens=counts.get("thoughts_token_count"),
            prompt_audio_tokens=prompt.get("AUDIO"),
            prompt_image_tokens=prompt.get("IMAGE"),
            prompt_text_tokens=prompt.get("TEXT"),
            completion_audio_tokens=answer.get("AUDIO"),
            completion_text_tokens=answer.get("TEXT"),
        )


def _share(details: list[_Share] | None) -> dict[str, int]:
    return {share.modality: share.tokenCount for share in details or ()}


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def usage_object(usage: Usage | None, more: dict[str, bytes]) -> dict[str, Any]:
    """Totals are always numbers. `more` are fields of an upstream of this dialect."""
    usage = usage or Usage()
    prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
    found: dict[str, Any] = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": max(0, completion - (usage.reasoning_tokens or 0)),
        "totalTokenCount": prompt + completion,
    }
    if usage.cached_tokens is not None:
        found["cachedContentTokenCount"] = usage.cached_tokens
    if usage.reasoning_tokens is not None:
        found["thoughtsTokenCount"] = usage.reasoning_tokens
    shares = {
        "promptTokensDetails": {
            "TEXT": usage.prompt_text_tokens,
            "IMAGE": usage.prompt_image_tokens,
            "AUDIO": usage.prompt_audio_tokens,
        },
        "candidatesTokensDetails": {"TEXT": usage.completion_text_tokens, "AUDIO": usage.completion_audio_tokens},
    }
    for name, counts in shares.items():
        rows = [{"modality": kind, "tokenCount": count} for kind, count in counts.items() if count is not None]
        if rows:
            found[name] = rows
    for name, raw in more.items():
        found.setdefault(name, orjson.Fragment(raw))
    return found
