"""How many tokens an effort is worth on models that are told a budget to think with. Knows no dialect."""

from adapters.canonical.errors import InvalidRequest

__all__ = ["MIN_THINKING", "thinking_budget"]

MIN_THINKING = 1024
"""The least that models with a budget take."""
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768, "max": 49152}


def thinking_budget(effort: str, max_tokens: int | None) -> int:
    """Tokens to think with, below the limit of the whole answer. Raises InvalidRequest where that leaves none."""
    wanted = _BUDGETS.get(effort, _BUDGETS["medium"])
    if max_tokens is None:
        return wanted
    if max_tokens <= MIN_THINKING:
        raise InvalidRequest.at("reasoning_effort", f"this model needs max_tokens above {MIN_THINKING} to think")
    return min(wanted, max(MIN_THINKING, max_tokens // 2))
