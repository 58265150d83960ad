"""Words of the Responses API that both sides share.

Sources: the openai SDK 3.57 types, OpenAI's API description of 2026-08, the Open Responses specification of 2026-04-24.
"""

from collections.abc import Callable, Mapping

from adapters.canonical.errors import (
    GatewayError,
    InvalidRequest,
    QueueFull,
    RateLimited,
    UpstreamRateLimited,
)
from adapters.canonical.stop_reason import StopReason
from adapters.openai.errors import IMAGE_CODES

__all__ = [
    "COMPACTION",
    "CUSTOM_CALL",
    "CUSTOM_OUTPUT",
    "ENCRYPTED",
    "ENCRYPTED_CONTENT",
    "FUNCTION_CALL",
    "FUNCTION_OUTPUT",
    "HINTS",
    "INCLUDE",
    "INCOMPLETE_REASONS",
    "INPUT_MESSAGES",
    "ITEM_ADDED",
    "ITEM_DONE",
    "ITEM_REFERENCE",
    "LOGPROBS",
    "MESSAGE",
    "NEW_ITEM",
    "OF_REASONING",
    "REASONING",
    "SPELLINGS",
    "STOP_REASONS",
    "WIRE_EVENT",
    "error_code",
]

MESSAGE = "message"
REASONING = "reasoning"
FUNCTION_CALL = "function_call"
FUNCTION_OUTPUT = "function_call_output"
CUSTOM_CALL = "custom_tool_call"
CUSTOM_OUTPUT = "custom_tool_call_output"

ITEM_REFERENCE = "item_reference"
COMPACTION = "compaction"
ENCRYPTED_CONTENT = "encrypted_content"
"""Field of a thought or a compaction: what only its maker can read."""

ITEM_ADDED = "response.output_item.added"
ITEM_DONE = "response.output_item.done"

OF_REASONING = ("effort", "summary", "context", "mode")
"""Fields of `reasoning` that the canonical form has."""

NEW_ITEM = "new_item"
"""Among the opaque fields of a text: it begins a message of its own, though a message stands before it."""
WIRE_EVENT = "response."
"""How the type of an event of a hosted item begins; other types are those of the item itself, at its end."""

ENCRYPTED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
INCLUDE = frozenset(
    (
        ENCRYPTED,
        LOGPROBS,
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
    )
)
"""Values of `include`."""

HINTS: Mapping[str, Callable[[object], bool] | None] = {
    "client_metadata": None,
    "messages[].internal_chat_message_metadata_passthrough": None,
}
"""Unmapped fields that say nothing about an answer, as those of Anthropic are told: Codex labels its requests."""

INCOMPLETE_REASONS = {
    StopReason.LENGTH: "max_output_tokens",
    StopReason.CONTENT_FILTER: "content_filter",
}
"""Ends that leave a response incomplete, with the word for it."""


STOP_REASONS = {
    "max_output_tokens": StopReason.LENGTH,
    "max_tokens": StopReason.LENGTH,
    "content_filter": StopReason.CONTENT_FILTER,
}
"""An upstream's reason for an incomplete response to ours; an unknown word is OTHER and is kept raw."""

INPUT_MESSAGES = "input_messages"
"""Field of the response that has the whole input as chat messages (vLLM's `enable_response_messages`)."""

SPELLINGS = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "logprobs": "top_logprobs",
    "output_format": "text.format",
    "verbosity": "text.verbosity",
    "include_obfuscation": "stream_options.include_obfuscation",
}
"""Canonical field names to the client's where no table row tells."""


_ERROR_CODES = IMAGE_CODES | frozenset(
    (
        "server_error", "rate_limit_exceeded", "invalid_prompt", "data_residency_mismatch", "bio_policy",
        "misalignment_policy_violation", "vector_store_timeout", "image_content_policy_violation",
    )
)  # fmt: skip


def error_code(error: GatewayError) -> str:
    """The code of a failed response, which the API has an enum for; the type says more."""
    if error.code in _ERROR_CODES:
        return error.code
    if isinstance(error, RateLimited | UpstreamRateLimited | QueueFull):
        return "rate_limit_exceeded"
    return "invalid_prompt" if isinstance(error, InvalidRequest) else "server_error"
