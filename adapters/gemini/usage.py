"""Gemini's usageMetadata, both ways. Its candidates leave out what the model thought; ours are inclusive."""

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import astuple

from adapters.canonical.usage import Usage
from adapters.raw_json import add_missing, raw_fields

__all__ = ["RunningUsage", "usage_object"]

_NULL = b"null"
_NO_SHARES: dict[str, int] = {}


class _Share(Struct, rename="camel"):
    """How many of the tokens are of one kind."""

    modality: str = ""
    token_count: int = 0


class _Counts(Struct, rename="camel", forbid_unknown_fields=True):
    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    prompt_tokens_details: list[_Share] | None = None
    candidates_tokens_details: list[_Share] | None = None
    total_token_count: int | None = None


_decode_counts = Decoder(_Counts).decode
_encode = msgspec.json.Encoder().encode
_KNOWN = frozenset(_Counts.__struct_encode_fields__)


class RunningUsage:
    """The totals of one answer. A later report replaces an earlier one, but for what it leaves out."""

    __slots__ = ("_counts", "_last", "_reported", "_rest")

    def __init__(self) -> None:
        self._counts = self._reported = _Counts()
        self._rest: dict[str, bytes] = {}
        self._last = b""

    def note(self, raw: bytes) -> None:
        """Keeps a report for later. Nearly every chunk has one, with the fields of the one before, which it replaces
        whole; only before one with other fields has that to be read."""
        last = self._last
        if last and raw.count(b'"') != last.count(b'"'):
            self._read()
        self._last = raw

    def report(self) -> tuple[Usage | None, dict[str, bytes]]:
        """The totals, None where they are as reported before, and fields that we do not map and are news."""
        news = self._read()
        if self._counts == self._reported:
            return None, news
        self._reported = self._counts
        return _usage(self._counts), news

    def _read(self) -> dict[str, bytes]:
        """Takes in the report that is kept."""
        raw, self._last = self._last, b""
        if not raw:
            return {}
        news: dict[str, bytes] = {}
        try:
            counts = _decode_counts(raw)
        except msgspec.ValidationError:
            known, news = self._apart(raw)
            counts = _decode_counts(known)
        self._counts = _completed(counts, self._counts)
        return news

    def _apart(self, raw: bytes) -> tuple[bytes, dict[str, bytes]]:
        """The fields that we know, and those of the others that are news."""
        fields = raw_fields(raw)
        found = {name: bytes(fields.pop(name)) for name in list(fields) if name not in _KNOWN}
        news = {name: value for name, value in found.items() if value != _NULL and self._rest.get(name) != value}
        self._rest.update(news)
        return _encode(fields), news


def _completed(counts: _Counts, before: _Counts) -> _Counts:
    values = astuple(counts)
    if None not in values:
        return counts
    older = astuple(before)
    return _Counts(*[value if value is not None else known for value, known in zip(values, older, strict=True)])


def _usage(counts: _Counts) -> Usage:
    prompt, answer = _share(counts.prompt_tokens_details), _share(counts.candidates_tokens_details)
    return Usage(
        prompt_tokens=_sum(counts.prompt_token_count, counts.tool_use_prompt_token_count),
        completion_tokens=_sum(counts.candidates_token_count, counts.thoughts_token_count),
        cached_tokens=counts.cached_content_token_count,
        reasoning_tokens=counts.thoughts_token_count,
        prompt_audio_tokens=prompt.get("AUDIO"),
        prompt_image_tokens=prompt.get("IMAGE"),
        prompt_text_tokens=prompt.get("TEXT"),
        completion_audio_tokens=answer.get("AUDIO"),
        completion_text_tokens=answer.get("TEXT"),
    )


def _share(details: list[_Share] | None) -> dict[str, int]:
    return {share.modality: share.token_count for share in details} if details else _NO_SHARES


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None and count >= 0]
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
    add_missing(found, more)
    return found
