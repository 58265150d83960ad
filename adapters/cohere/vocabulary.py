"""Cohere's words: the dialect's name, its finish reasons. Source: the reference of its chat API, v2 (2026-11)."""

from adapters.canonical.stop_reason import StopReason

__all__ = ["CHAT", "FINISH_REASONS"]

CHAT = "cohere.chat"

FINISH_REASONS = {
    "COMPLETE": StopReason.STOP,
    "STOP_SEQUENCE": StopReason.STOP,
    "MAX_TOKENS": StopReason.LENGTH,
    "TOOL_CALL": StopReason.TOOL_CALLS,
}
"""An unknown word is OTHER and is kept raw. ERROR and TIMEOUT are errors (`answer`)."""
