"""Token logprobs in OpenAI's two forms: chat (a list of entries) and legacy completions (parallel lists)."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.usage import MIN_LOGPROB, TokenLogprob, TopLogprob, floor_logprob

__all__ = [
    "LegacyLogprobs",
    "WireChatLogprobs",
    "WireLegacyLogprobs",
    "WireEntry",
    "chat_logprobs_object",
    "content_logprobs",
    "logprob_objects",
    "parse_chat_logprobs",
    "parse_legacy_logprobs",
]


Byte = Annotated[int, Meta(ge=0, le=255)]


class _Top(Struct):
    token: str
    logprob: float
    bytes: list[Byte] | None = None


class WireEntry(Struct):
    token: str
    logprob: float | None = None
    bytes: list[Byte] | None = None
    top_logprobs: list[_Top] | None = None


class WireChatLogprobs(Struct):
    """`tokens` and what follows are the legacy form, in which Together answers chat as well."""

    content: list[WireEntry] | None = None
    refusal: list[WireEntry] | None = None
    reasoning_content: list[WireEntry] | None = None  # ours
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class WireLegacyLogprobs(Struct):
    content: list[WireEntry] | None = None  # llama.cpp answers in the chat form
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


def content_logprobs(found: WireChatLogprobs) -> tuple[TokenLogprob, ...]:
    """Those of the text, in either form."""
    if found.tokens is None or found.content is not None:
        return parse_chat_logprobs(found.content)
    return parse_legacy_logprobs(WireLegacyLogprobs(None, found.tokens, found.token_logprobs, found.top_logprobs))


def parse_chat_logprobs(entries: list[WireEntry] | None) -> tuple[TokenLogprob, ...]:
    return tuple(map(_entry, entries or ()))


def _entry(entry: WireEntry) -> TokenLogprob:
    return TokenLogprob(
        text=entry.token,
        logprob=None if entry.logprob is None else floor_logprob(entry.logprob),
        raw=None if entry.bytes is None else bytes(entry.bytes),
        top=tuple(
            [
                TopLogprob(top.token, floor_logprob(top.logprob), raw=None if top.bytes is None else bytes(top.bytes))
                for top in entry.top_logprobs or ()
            ]
        ),
    )


def parse_legacy_logprobs(found: WireLegacyLogprobs) -> tuple[TokenLogprob, ...]:
    if found.content is not None:
        return parse_chat_logprobs(found.content)
    tokens = found.tokens or []
    logprobs = found.token_logprobs or [None] * len(tokens)
    tops = found.top_logprobs or [None] * len(tokens)
    if not len(tokens) == len(logprobs) == len(tops):
        raise BadUpstreamResponse("the upstream's logprobs lists differ in length")
    return tuple(
        [
            TokenLogprob(
                text=token,
                logprob=None if logprob is None else floor_logprob(logprob),
                top=tuple([TopLogprob(text, floor_logprob(value)) for text, value in (top or {}).items()]),
            )
            for token, logprob, top in zip(tokens, logprobs, tops, strict=True)
        ]
    )


def chat_logprobs_object(
    content: tuple[TokenLogprob, ...],
    refusal: tuple[TokenLogprob, ...] = (),
    reasoning: tuple[TokenLogprob, ...] = (),
) -> dict[str, Any] | None:
    """The `logprobs` object of a choice, None where there is nothing. OpenAI has no word for those of reasoning; they
    stand apart, so that the bytes of `content` are exactly those of the text."""
    if not (content or refusal or reasoning):
        return None
    found: dict[str, Any] = {
        "content": [_entry_object(entry) for entry in content] if content else None,
        "refusal": [_entry_object(entry) for entry in refusal] if refusal else None,
    }
    if reasoning:
        found["reasoning_content"] = [_entry_object(entry) for entry in reasoning]
    return found


def logprob_objects(entries: tuple[TokenLogprob, ...]) -> list[dict[str, Any]]:
    """The entries as the Responses API has them, where bytes are always a list."""
    found = [_entry_object(entry) for entry in entries]
    for entry in found:
        for one in (entry, *entry["top_logprobs"]):
            if one["bytes"] is None:  # not reported: the text's, unless it stands for a piece of a character
                one["bytes"] = [] if "\ufffd" in one["token"] else list(one["token"].encode())
    return found


def _entry_object(entry: TokenLogprob) -> dict[str, Any]:
    return {
        "token": entry.text,
        "logprob": MIN_LOGPROB if entry.logprob is None else floor_logprob(entry.logprob),
        "bytes": None if entry.raw is None else list(entry.raw),
        "top_logprobs": [
            {
                "token": top.text,
                "logprob": floor_logprob(top.logprob),
                "bytes": None if top.raw is None else list(top.raw),
            }
            for top in entry.top
        ],
    }


class LegacyLogprobs:
    """Renders the parallel lists of one completions choice; keeps the character offset over a stream's chunks."""

    __slots__ = ("_offset",)

    def __init__(self) -> None:
        self._offset = 0

    def object(self, entries: tuple[TokenLogprob, ...]) -> dict[str, Any]:
        """`text_offset` counts characters from the start of the choice's text (of the prompt with echo)."""
        offsets = []
        for entry in entries:
            offsets.append(self._offset)
            self._offset += entry.num_characters
        return {
            "tokens": [entry.text for entry in entries],
            "token_logprobs": [None if entry.logprob is None else floor_logprob(entry.logprob) for entry in entries],
            "top_logprobs": [_alternatives(entry) for entry in entries],
            "text_offset": offsets,
        }


def _alternatives(entry: TokenLogprob) -> dict[str, float] | None:
    """The asked alternatives and always the chosen token, so up to k + 1 entries; None for a prompt's first token."""
    if entry.logprob is None:
        return None
    found = {top.text: floor_logprob(top.logprob) for top in entry.top}
    found.setdefault(entry.text, floor_logprob(entry.logprob))
    return found
