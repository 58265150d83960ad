"""The fields that the requests of each dialect have at their top: what a misspelt one may have meant.

Knows names alone; what becomes of a field is the parsers' and the router's business.
"""

from collections.abc import Collection, Mapping

from adapters.anthropic.vocabulary import HINTS as ANTHROPIC_HINTS
from adapters.anthropic.vocabulary import MESSAGES
from adapters.gemini.vocabulary import GEMINI
from adapters.gemini.vocabulary import HINTS as GEMINI_HINTS
from adapters.gemini.vocabulary import SPELLINGS as GEMINI_SPELLINGS
from adapters.llamacpp.vocabulary import FIELDS as LLAMACPP_FIELDS
from adapters.llamacpp.vocabulary import HINTS as LLAMACPP_HINTS
from adapters.llamacpp.vocabulary import LLAMACPP, RESPONSE_FIELDS
from adapters.ollama.vocabulary import CHAT as OLLAMA_CHAT
from adapters.ollama.vocabulary import GENERATE, OPTIONS
from adapters.ollama.vocabulary import HINTS as OLLAMA_HINTS
from adapters.openai.aliases import ALIASES
from adapters.openai.embeddings.front import EMBEDDINGS
from adapters.openai.response_format import FORMAT_ALIASES
from adapters.openai.vocabulary import (
    CHAT,
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    COMPLETIONS,
    RESPONSES,
    RESPONSES_FIELDS,
)

__all__ = ["FIELD_NAMES"]

_GENERATED = (*ALIASES, *FORMAT_ALIASES, "model", "stream", "stream_options", "stop", "logit_bias")
_OLLAMA = (
    *("model", "stream", "format", "options", "think", "logprobs", "top_logprobs", "keep_alive"),
    *OLLAMA_HINTS,
    *(f"options.{option.wire}" for option in OPTIONS),
    *("options.num_predict", "options.stop"),
)

FIELD_NAMES: Mapping[str, Collection[str]] = {
    CHAT: (
        *CHAT_FIELDS.by_wire,
        *_GENERATED,
        *("messages", "tools", "tool_choice", "response_format", "logprobs", "top_logprobs"),
        *("max_tokens", "max_completion_tokens"),
    ),
    COMPLETIONS: (*COMPLETION_FIELDS.by_wire, *_GENERATED, "prompt", "max_tokens", "logprobs", "response_format"),
    RESPONSES: (
        *RESPONSES_FIELDS.by_wire,
        *_GENERATED,
        *(
            "input",
            "instructions",
            "include",
            "tools",
            "tool_choice",
            "text",
            "reasoning",
            "truncation",
            "top_logprobs",
        ),
        *("max_output_tokens", "max_tool_calls", "previous_response_id", "conversation", "background", "store"),
        "metadata",
    ),
    EMBEDDINGS: ("model", "input", "dimensions", "encoding_format", "user", "truncate_prompt_tokens", "input_type"),
    MESSAGES: (
        *("model", "messages", "system", "max_tokens", "stream", "stop_sequences", "temperature", "top_k", "top_p"),
        *("thinking", "tools", "tool_choice", "output_config", "service_tier", "container"),
        *(name for name in ANTHROPIC_HINTS if "." not in name),
    ),
    GEMINI: (
        *GEMINI_HINTS,
        *("contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "cachedContent", "store"),
        *GEMINI_SPELLINGS.values(),
        *("generationConfig.responseSchema", "generationConfig.responseJsonSchema"),
    ),
    OLLAMA_CHAT: (*_OLLAMA, "messages", "tools"),
    GENERATE: (*_OLLAMA, "prompt", "suffix", "system", "images", "raw"),
    LLAMACPP: (
        *LLAMACPP_FIELDS.by_wire,
        *LLAMACPP_HINTS,
        *("model", "prompt", "input_prefix", "input_suffix", "input_extra", "stream", "stop", "logit_bias"),
        *("samplers", "n_predict", "n_probs", "grammar", "json_schema", RESPONSE_FIELDS),
    ),
}
"""By dialect; a field of a group has its group's name before it (`options.top_k`)."""
