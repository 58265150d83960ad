"""The usage object of the Responses API, both ways. All its counts are required, so what nobody knows is 0 there."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from adapters.canonical.usage import Usage, tier_of
from adapters.raw_json import add_missing

__all__ = ["USAGE_FIELDS", "WireResponseUsage", "parse_response_usage", "response_usage_object"]


class _InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class WireResponseUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


USAGE_FIELDS = frozenset((*WireResponseUsage.__struct_fields__, "total_tokens"))
_NO_INPUT_DETAILS = _InputDetails()
_NO_OUTPUT_DETAILS = _OutputDetails()


def parse_response_usage(found: WireResponseUsage, tier: object = None) -> Usage:
    """`tier` is the upstream's word for that of the answer."""
    prompt = found.input_tokens_details or _NO_INPUT_DETAILS
    completion = found.output_tokens_details or _NO_OUTPUT_DETAILS
    return Usage(
        prompt_tokens=found.input_tokens,
        completion_tokens=found.output_tokens,
        cached_tokens=prompt.cached_tokens,
        cache_write_tokens=prompt.cache_write_tokens,
        reasoning_tokens=completion.reasoning_tokens,
        tier=tier_of(tier),
    )


def response_usage_object(usage: Usage, more: Mapping[str, bytes] | None = None) -> dict[str, Any]:
    """With the lists of each turn that vLLM adds; several turns are those of tools that the gateway itself runs.

    `more` are fields of an upstream of this dialect, which speak of one turn.
    """
    turns = usage.turns or (usage,)
    of_tools = _tool_output(turns)
    found: dict[str, Any] = {
        "input_tokens": usage.prompt_tokens or 0,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens or 0,
            "cache_write_tokens": usage.cache_write_tokens or 0,
            "input_tokens_per_turn": [turn.prompt_tokens or 0 for turn in turns],
            "cached_tokens_per_turn": [turn.cached_tokens or 0 for turn in turns],
        },
        "output_tokens": usage.completion_tokens or 0,
        "output_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens or 0,
            "tool_output_tokens": sum(of_tools),
            "output_tokens_per_turn": [turn.completion_tokens or 0 for turn in turns],
            "tool_output_tokens_per_turn": of_tools,
        },
        "total_tokens": usage.total_tokens or 0,
    }
    if usage.estimated:
        found["estimated"] = True
    if more and len(turns) < 2:
        add_missing(found, more)
    return found


def _tool_output(turns: Sequence[Usage]) -> list[int]:
    """What the prompt of each turn has beyond all of the turn before it: the outputs of tools."""
    found = [0]
    for before, turn in pairwise(turns):
        known = (before.prompt_tokens or 0) + (before.completion_tokens or 0)
        found.append(max((turn.prompt_tokens or 0) - known, 0))
    return found
