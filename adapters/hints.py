"""What a request may say that changes nothing about its answer: labels, keys of caches, how a server keeps its models,
or in which order its samplers come.

A target that has a word for a hint gets it. Any other is asked all the same: the hint is left out and listed, and no
`unsupported_params` of run.yaml makes it an error. Knows the canonical fields; the dialects' own hints stand with their
words (`<dialect>.vocabulary.HINTS`).
"""

from collections.abc import Callable, Mapping

import msgspec

from adapters.anthropic.vocabulary import HINTS as ANTHROPIC_HINTS
from adapters.anthropic.vocabulary import MESSAGES
from adapters.gemini.vocabulary import GEMINI
from adapters.gemini.vocabulary import HINTS as GEMINI_HINTS
from adapters.llamacpp.vocabulary import HINTS as LLAMACPP_HINTS
from adapters.llamacpp.vocabulary import LLAMACPP
from adapters.ollama.embeddings import EMBED, EMBED_HINTS
from adapters.ollama.vocabulary import CHAT as OLLAMA_CHAT
from adapters.ollama.vocabulary import GENERATE
from adapters.ollama.vocabulary import HINTS as OLLAMA_HINTS
from adapters.openai.responses.vocabulary import HINTS as RESPONSES_HINTS
from adapters.openai.vocabulary import CHAT, CHAT_HINTS, RESPONSES

__all__ = ["HINTS", "is_hint"]

HINTS = frozenset(
    (
        "user",
        "safety_identifier",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prompt_cache_options",
        "keep_alive_s",
        "temperature_last",
    )
)
"""Canonical fields."""
_OF_DIALECT: Mapping[str, Mapping[str, Callable[[object], bool] | None]] = {
    MESSAGES: ANTHROPIC_HINTS,
    GEMINI: GEMINI_HINTS,
    OLLAMA_CHAT: OLLAMA_HINTS,
    GENERATE: OLLAMA_HINTS,
    EMBED: EMBED_HINTS,
    LLAMACPP: LLAMACPP_HINTS,
    CHAT: CHAT_HINTS,
    RESPONSES: RESPONSES_HINTS,
}


def is_hint(dialect: str, name: str, raw: bytes) -> bool:
    """Whether this unmapped field of a dialect says nothing about the answer, with the value that it has."""
    hints = _OF_DIALECT.get(dialect, {})
    if name not in hints:
        return False
    says_nothing = hints[name]
    if says_nothing is None:
        return True
    try:
        return says_nothing(msgspec.json.decode(raw))
    except (msgspec.DecodeError, RecursionError):
        return False  # a number beyond all sizes, which only its own dialect may judge
