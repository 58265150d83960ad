"""Gemini's logprobsResult, both ways: the chosen tokens and, beside them, the alternatives of each step."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.usage import TokenLogprob, TopLogprob, floor_logprob

__all__ = ["logprobs_object", "parse_logprobs"]


class _Token(Struct, rename="camel"):
    token: str = ""
    token_id: int | None = None
    log_probability: float = 0.0


class _Step(Struct):
    candidates: list[_Token] = []


class _Result(Struct, rename="camel"):
    chosen_candidates: list[_Token] | None = None
    top_candidates: list[_Step] | None = None


_decode = Decoder(_Result).decode


def parse_logprobs(raw: bytes) -> tuple[TokenLogprob, ...]:
    found = _decode(raw)
    steps = found.top_candidates or []
    tokens: list[TokenLogprob] = []
    for place, one in enumerate(found.chosen_candidates or ()):
        step = steps[place].candidates if place < len(steps) else []
        top = tuple([TopLogprob(other.token, floor_logprob(other.log_probability), other.token_id) for other in step])
        tokens.append(TokenLogprob(one.token, floor_logprob(one.log_probability), one.token_id, None, top))
    return tuple(tokens)


def logprobs_object(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    return {
        "chosenCandidates": [_token_object(token) for token in tokens],
        "topCandidates": [{"candidates": [_token_object(other) for other in token.top]} for token in tokens],
    }


def _token_object(token: TokenLogprob | TopLogprob) -> dict[str, Any]:
    found: dict[str, Any] = {"token": token.text, "logProbability": token.logprob}
    if token.token_id is not None:
        found["tokenId"] = token.token_id
    return found
