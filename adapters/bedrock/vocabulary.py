"""Converse's words: the dialect's name, its stop reasons, and what names and ids of tools may be.

Source: the service model `bedrock-runtime` of botocore 1.44 (2026-11).
"""

from adapters.canonical.stop_reason import StopReason
from adapters.tool_names import NameRule

__all__ = ["CONVERSE", "IDS", "NAMES", "STOP_REASONS"]

CONVERSE = "bedrock.converse"

STOP_REASONS = {
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "tool_use": StopReason.TOOL_CALLS,
    "guardrail_intervened": StopReason.CONTENT_FILTER,
    "content_filtered": StopReason.CONTENT_FILTER,
}
"""An unknown word is OTHER and is kept raw. Words for a model's malformed output are errors (`answer`)."""

NAMES = NameRule(first="a-zA-Z0-9_-", allowed="a-zA-Z0-9_-", max_length=64)
IDS = NameRule(first="a-zA-Z0-9_.:-", allowed="a-zA-Z0-9_.:-", max_length=64)
