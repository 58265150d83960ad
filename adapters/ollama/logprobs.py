"""Ollama's logprobs, both ways: a list of tokens with their alternatives."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from adapters.canonical.usage import TokenLogprob, TopLogprob, floor_logprob

__all__ = ["WireLogprob", "logprobs_list", "parse_logprobs"]


class WireTopLogprob(Struct):
    token: str = ""
    logprob: float = 0.0
    bytes: list[int] | None = None


class WireLogprob(WireTopLogprob):
    top_logprobs: list[WireTopLogprob] | None = None


def parse_logprobs(found: Sequence[WireLogprob]) -> tuple[TokenLogprob, ...]:
    return tuple(
        [
            TokenLogprob(
                one.token,
                floor_logprob(one.logprob),
                None,
                _raw(one),
                tuple(
                    [
                        TopLogprob(other.token, floor_logprob(other.logprob), None, _raw(other))
                        for other in one.top_logprobs or ()
                    ]
                ),
            )
            for one in found
        ]
    )


def _raw(one: WireTopLogprob) -> bytes | None:
    known = one.bytes is not None and all(0 <= value < 256 for value in one.bytes)
    return bytes(one.bytes or ()) if known else None


def logprobs_list(tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    found = []
    for token in tokens:
        row = _token_object(token)
        if token.top:
            row["top_logprobs"] = [_token_object(other) for other in token.top]
        found.append(row)
    return found


def _token_object(token: TokenLogprob | TopLogprob) -> dict[str, Any]:
    found: dict[str, Any] = {"token": token.text, "logprob": token.logprob}
    if token.raw is not None:
        found["bytes"] = list(token.raw)
    return found
