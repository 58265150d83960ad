"""Cohere's words: the dialects' names, its finish reasons. Source: the reference of its API, v2 (2026-11)."""

from adapters.canonical.stop_reason import StopReason

__all__ = ["CHAT", "EMBED", "FINISH_REASONS", "IMAGE"]

CHAT = "cohere.chat"
EMBED = "cohere.embed"
IMAGE = "image"
"""What vectors of images are for, and the kind of an input that is one."""

FINISH_REASONS = {
    "COMPLETE": StopReason.STOP,
    "STOP_SEQUENCE": StopReason.STOP,
    "MAX_TOKENS": StopReason.LENGTH,
    "TOOL_CALL": StopReason.TOOL_CALLS,
}
"""An unknown word is OTHER and is kept raw. ERROR and TIMEOUT are errors (`answer`)."""
