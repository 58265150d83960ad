"""How much the model thinks, both ways: `generationConfig.thinkingConfig`.

A client of this dialect gets exactly what it asked for. For others an effort becomes a level, or a budget on models
before Gemini 3, and what the model thought is asked for unless they want it hidden.
"""

import re
from functools import lru_cache
from typing import Any, Literal

from msgspec.json import Decoder

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.request import ReasoningOptions, Request
from adapters.field_types import BOOL
from adapters.gemini.vocabulary import BUDGET, GEMINI
from adapters.gemini.wire_objects import take_object
from adapters.json_fields import JsonObject

__all__ = ["is_third_generation", "take_thinking", "thinking_object"]

_LEVELS = Literal["MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH", "minimal", "low", "medium", "high", "xhigh"]
_LEVEL = Decoder(_LEVELS)
_VERSION = re.compile(r"gemini-(\d{1,2})(?!\d)")
_FIRST_WITH_LEVELS = 3
_NO_EFFORT = "none"
_ADAPTIVE = "adaptive"
_HIGHEST = {"max": "xhigh"}
_BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24_576, "xhigh": 24_576, "max": 24_576}
"""As Google's own chat surface counts them (2026-11)."""


def take_thinking(config: JsonObject) -> ReasoningOptions | None:
    """A budget of 0 is what other dialects call no effort; -1 leaves it to the model."""
    found = take_object(config, "thinkingConfig")
    if found is None:
        return None
    level = found.take("thinkingLevel", _LEVEL)
    budget = found.take("thinkingBudget", BUDGET)
    include = found.take("includeThoughts", BOOL)
    found.refuse_rest()
    effort = None if level is None else level.lower()
    if budget == 0 and effort is None:
        effort, budget = _NO_EFFORT, None
    mode = _ADAPTIVE if budget == -1 else None
    return ReasoningOptions(effort=effort, budget_tokens=None if mode else budget, mode=mode, include=include)


def thinking_object(request: Request) -> dict[str, Any] | None:
    options = request.reasoning
    if options is None:
        return None
    native = request.dialect == GEMINI
    found: dict[str, Any] = {}
    if options.mode is not None and options.mode != _ADAPTIVE:
        raise UnsupportedParameter.at("reasoning", f"Gemini can't think in the mode {options.mode}")
    if options.mode is not None and native:
        found["thinkingBudget"] = -1
    elif options.budget_tokens is not None:
        found["thinkingBudget"] = options.budget_tokens
    effort = options.effort
    if effort == _NO_EFFORT:
        found["thinkingBudget"] = 0
    elif effort is not None:
        if native or is_third_generation(request.model):
            found["thinkingLevel"] = _HIGHEST.get(effort, effort).upper()
        elif "thinkingBudget" not in found:
            found["thinkingBudget"] = _BUDGETS.get(effort, _BUDGETS["medium"])
    if options.include is not None:
        found["includeThoughts"] = options.include
    elif found and not native and effort != _NO_EFFORT:
        found["includeThoughts"] = True
    return found or None


@lru_cache(maxsize=256)
def is_third_generation(model: str) -> bool:
    """Gemini 3 and later think by levels and demand their signatures back. An unknown name counts as one of them."""
    found = _VERSION.search(model)
    return found is None or int(found[1]) >= _FIRST_WITH_LEVELS
