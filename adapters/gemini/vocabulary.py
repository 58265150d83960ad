"""Gemini's words: the dialect's name, why an answer ended both ways, levels of thinking, types of request fields.

Source: the google-genai SDK 3.6 types and Google's REST reference (2026-11).
"""

from collections.abc import Callable, Mapping
from typing import Annotated

from msgspec import Meta
from msgspec.json import Decoder

from adapters.canonical.events import ChoiceFinished
from adapters.canonical.stop_reason import StopReason
from adapters.tool_names import NameRule

__all__ = ["GEMINI", "HINTS", "MODE", "SPELLINGS", "STOP_REASONS", "TOOL_NAMES", "finish_word"]

GEMINI = "gemini.generate_content"

STOP_REASONS = {
    "STOP": StopReason.STOP,
    "MAX_TOKENS": StopReason.LENGTH,
    "SAFETY": StopReason.CONTENT_FILTER,
    "RECITATION": StopReason.CONTENT_FILTER,
    "BLOCKLIST": StopReason.CONTENT_FILTER,
    "PROHIBITED_CONTENT": StopReason.CONTENT_FILTER,
    "SPII": StopReason.CONTENT_FILTER,
    "ESCALATION": StopReason.CONTENT_FILTER,
    "MODEL_ARMOR": StopReason.CONTENT_FILTER,
    "IMAGE_SAFETY": StopReason.CONTENT_FILTER,
    "IMAGE_PROHIBITED_CONTENT": StopReason.CONTENT_FILTER,
    "IMAGE_RECITATION": StopReason.CONTENT_FILTER,
    "CONTINUATION": StopReason.PAUSED,
    "MALFORMED_FUNCTION_CALL": StopReason.ERROR,
    "UNEXPECTED_TOOL_CALL": StopReason.ERROR,
    "TOO_MANY_TOOL_CALLS": StopReason.ERROR,
    "MISSING_THOUGHT_SIGNATURE": StopReason.ERROR,
    "MALFORMED_RESPONSE": StopReason.ERROR,
    "PUP_LIMITED_DISABLED": StopReason.ERROR,
    "LANGUAGE": StopReason.ERROR,
    "NO_IMAGE": StopReason.ERROR,
    "IMAGE_OTHER": StopReason.ERROR,
    "OTHER": StopReason.ERROR,
    "FINISH_REASON_UNSPECIFIED": StopReason.OTHER,
}
"""Upstream's finishReason to ours. STOP with a call is TOOL_CALLS; an unknown word is OTHER and is kept raw."""

_FINISH_WORDS = {
    StopReason.STOP: "STOP",
    StopReason.LENGTH: "MAX_TOKENS",
    StopReason.TOOL_CALLS: "STOP",
    StopReason.CONTENT_FILTER: "SAFETY",
    StopReason.PAUSED: "OTHER",
    StopReason.OTHER: "OTHER",
}
"""Ours to the client's finishReason. ERROR and CANCELLED are never a word but an error."""

TOOL_NAMES = NameRule(first="A-Za-z_", allowed="A-Za-z0-9_.:-", max_length=128)

BUDGET = Decoder(Annotated[int, Meta(ge=-1, le=2**31 - 1)])
CANDIDATES = Decoder(Annotated[int, Meta(ge=1, le=128)])
TOP_K = Decoder(Annotated[float, Meta(ge=0, le=2**31 - 1)])
SEED = Decoder(Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)])
STOPS = Decoder(Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=64)])

_CONFIG = "generationConfig."
SPELLINGS = {
    "messages": "contents",
    "tool_choice": "toolConfig.functionCallingConfig",
    "service_tier": "serviceTier",
    "n": _CONFIG + "candidateCount",
    "max_tokens": _CONFIG + "maxOutputTokens",
    "stop": _CONFIG + "stopSequences",
    "temperature": _CONFIG + "temperature",
    "top_p": _CONFIG + "topP",
    "top_k": _CONFIG + "topK",
    "seed": _CONFIG + "seed",
    "presence_penalty": _CONFIG + "presencePenalty",
    "frequency_penalty": _CONFIG + "frequencyPenalty",
    "logprobs": _CONFIG + "responseLogprobs",
    "output_format": _CONFIG + "responseMimeType",
    "modalities": _CONFIG + "responseModalities",
    "reasoning.effort": _CONFIG + "thinkingConfig.thinkingLevel",
    "reasoning.budget_tokens": _CONFIG + "thinkingConfig.thinkingBudget",
    "reasoning.mode": _CONFIG + "thinkingConfig.thinkingBudget",
    "reasoning.include": _CONFIG + "thinkingConfig.includeThoughts",
}
"""Canonical field names to Gemini's where they differ."""


def _blocks_nothing(settings: object) -> bool:
    rows = settings if isinstance(settings, list) else [settings]
    return all(isinstance(row, dict) and row.get("threshold") in ("BLOCK_NONE", "OFF") for row in rows)


MODE = "toolConfig.functionCallingConfig.mode"
HINTS: Mapping[str, Callable[[object], bool] | None] = {"labels": None, "safetySettings": _blocks_nothing, MODE: None}
"""Unmapped fields that say nothing about an answer, and whether a value says nothing; None: none says anything."""


def finish_word(finish: ChoiceFinished, *, refused: bool) -> str | None:
    """The client's finishReason, None for a finish that is an error. `refused`: the model refused in words."""
    reason = finish.reason
    if STOP_REASONS.get(finish.raw or "") is reason:
        return finish.raw
    if refused and reason is StopReason.STOP:
        return _FINISH_WORDS[StopReason.CONTENT_FILTER]
    return _FINISH_WORDS.get(reason)
