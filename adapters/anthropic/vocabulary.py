"""Anthropic's words: the dialect's name, its stop reasons both ways, its frames, and the types of its request fields.

Source: the anthropic SDK 2.14 types (2026-11).
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import orjson
from msgspec import Meta
from msgspec.json import Decoder

from adapters.canonical.events import ChoiceFinished
from adapters.canonical.stop_reason import StopReason
from adapters.sse import on_one_line
from adapters.tool_names import NameRule

__all__ = [
    "BILLING",
    "HINTS",
    "MESSAGES",
    "NO_THREADS",
    "PING",
    "SPELLINGS",
    "STOP_REASONS",
    "frame",
    "stop_word",
]

MESSAGES = "anthropic.messages"

NO_THREADS = "thread_unsupported_request"
"""The `error_code` at which the SDKs' tool runners send whole conversations instead (anthropic 2.14)."""

STOP_REASONS = {
    "end_turn": StopReason.STOP,
    "stop_sequence": StopReason.STOP,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "tool_use": StopReason.TOOL_CALLS,
    "refusal": StopReason.CONTENT_FILTER,
    "pause_turn": StopReason.PAUSED,
}
"""Upstream's stop_reason to ours; an unknown word is OTHER and is kept raw."""

_STOP_WORDS = {
    StopReason.STOP: "end_turn",
    StopReason.LENGTH: "max_tokens",
    StopReason.TOOL_CALLS: "tool_use",
    StopReason.CONTENT_FILTER: "refusal",
    StopReason.PAUSED: "pause_turn",
    StopReason.OTHER: "end_turn",
}
"""Ours to the client's stop_reason. ERROR and CANCELLED are never a stop word but an error."""

NAMES = NameRule(first="a-zA-Z0-9_-", allowed="a-zA-Z0-9_-", max_length=128)
IDS = NameRule(first="a-zA-Z0-9_-", allowed="a-zA-Z0-9_-", max_length=128)
"""What names of tools and ids of calls may be. A client of this dialect gets the API's own word on its own."""

STOPS = Decoder(Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=8191)])

SPELLINGS = {
    "stop": "stop_sequences",
    "user": "metadata.user_id",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "output_format": "output_config.format",
    "reasoning.effort": "output_config.effort",
    "reasoning.budget_tokens": "thinking.budget_tokens",
    "reasoning.mode": "thinking.type",
    "reasoning.include": "thinking.display",
    "template.continue_final_message": "messages[-1].role",
    "template.add_generation_prompt": "messages[-1].content",
}
"""Canonical field names to Anthropic's where they differ."""


BILLING = "x-anthropic-billing-header"
"""How a line begins that agents put first into the system prompt, for the vendor's books. It changes with each request:
a model that reads it finds nothing of the conversation in its cache of prompts."""

HINTS: Mapping[str, Callable[[object], bool] | None] = {
    "metadata": None,
    "cache_control": None,
    "context_management": (
        {"edits": []},
        {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},  # nothing is taken out
    ).__contains__,
    "speed": ("standard",).__contains__,
    "thinking.display": None,
    "thinking.block_binding": None,
    "tools[].eager_input_streaming": None,
    BILLING: None,
}
"""Unmapped fields that say nothing about an answer, and whether a value says nothing; None: none says anything."""


def frame(event: str, data: dict[str, Any]) -> bytes:
    """One server-sent event; its name stands in the data too."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), on_one_line(orjson.dumps({"type": event, **data})))


PING = frame("ping", {})


def stop_word(finish: ChoiceFinished, *, called: bool, refused: bool) -> str | None:
    """The client's stop_reason, None for a finish that is an error.

    `called`: the turn holds a tool call, which ends a turn in `tool_use` whatever the upstream says of a natural end.
    """
    reason = finish.reason
    if reason in (StopReason.STOP, StopReason.OTHER):
        if called:
            return _STOP_WORDS[StopReason.TOOL_CALLS]
        if refused:
            return _STOP_WORDS[StopReason.CONTENT_FILTER]
        if isinstance(finish.stop, str):
            return "stop_sequence"
    if STOP_REASONS.get(finish.raw or "") is reason and finish.raw != "stop_sequence":
        return finish.raw
    return _STOP_WORDS.get(reason)
