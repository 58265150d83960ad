"""Ollama's words: the dialects' names, why an answer ended both ways, its options, types of request fields.

Source: the ollama SDK 0.6 types and the server's own (2026-11).
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Raw, ValidationError
from msgspec.json import Decoder

from adapters.canonical.events import ChoiceFinished
from adapters.canonical.stop_reason import StopReason
from adapters.field_types import FRACTION, PENALTY, WIDE_TEMPERATURE
from adapters.json_fields import Decodes

__all__ = [
    "API_VERSION",
    "CHAT",
    "GENERATE",
    "HINTS",
    "OPTIONS",
    "SAYS_NOTHING",
    "SPELLINGS",
    "STOP_REASONS",
    "Option",
    "Whole",
    "done_word",
]

CHAT = "ollama.chat"
GENERATE = "ollama.generate"
API_VERSION = "0.32.0"
"""Of the server whose API this is: clients look whether it is new enough."""

STOP_REASONS = {
    "stop": StopReason.STOP,
    "length": StopReason.LENGTH,
    "load": StopReason.STOP,  # nothing was asked
    "unload": StopReason.STOP,
}
"""Upstream's done_reason to ours; `stop` with a call is TOOL_CALLS; an unknown word is OTHER and is kept raw."""

_DONE_WORDS = {
    StopReason.STOP: "stop",
    StopReason.LENGTH: "length",
    StopReason.TOOL_CALLS: "stop",
    StopReason.CONTENT_FILTER: "content_filter",
    StopReason.PAUSED: "stop",
    StopReason.OTHER: "stop",
}
"""Ours to the client's done_reason. ERROR and CANCELLED are never a word but an error."""


class Whole:
    """Decodes an integer, also one that is written as a float: the server makes a float of every number first."""

    def __init__(self, *, ge: int, le: int) -> None:
        self._decoder = Decoder(Annotated[int, Meta(ge=ge, le=le)])

    def decode(self, raw: Raw, /) -> int:
        try:
            return self._decoder.decode(raw)
        except ValidationError:
            number = _NUMBER.decode(raw)
            return self._decoder.decode(b"%d" % number if number.is_integer() else raw)


_NUMBER = Decoder(float)
_COUNT = Whole(ge=0, le=2**31 - 1)


class Option(NamedTuple):
    """A field of `options` that the canonical sampling has."""

    wire: str
    name: str
    decoder: Decodes[Any]


OPTIONS = (
    Option("temperature", "temperature", WIDE_TEMPERATURE),
    Option("top_k", "top_k", _COUNT),
    Option("top_p", "top_p", FRACTION),
    Option("min_p", "min_p", FRACTION),
    Option("typical_p", "typical_p", FRACTION),
    Option("repeat_penalty", "repetition_penalty", Decoder(Annotated[float, Meta(gt=0, le=10)])),
    Option("presence_penalty", "presence_penalty", PENALTY),
    Option("frequency_penalty", "frequency_penalty", PENALTY),
    Option("repeat_last_n", "repeat_last_n", Whole(ge=-1, le=2**31 - 1)),
    Option("seed", "seed", Whole(ge=-(2**63), le=2**63 - 1)),
)
"""Parsed apart: num_predict and stop. Every other option is Ollama's own."""

HINTS: Mapping[str, Callable[[object], bool] | None] = {
    "truncate": (False,).__contains__,  # a prompt that is too long is an error, as it is elsewhere
    "shift": (False,).__contains__,
    **dict.fromkeys(
        [
            f"options.{name}"
            for name in (
                "num_ctx", "num_batch", "num_keep", "num_gpu", "main_gpu", "num_thread", "numa", "low_vram", "f16_kv",
                "use_mmap", "use_mlock", "mirostat_tau", "mirostat_eta",  # the last two mean something to mirostat
            )
        ]
    ),
    "options.mirostat": (0,).__contains__,
    "options.num_predict": (-2,).__contains__,  # up to the end of the window, as no limit is elsewhere
    "options.penalize_newline": (True,).__contains__,
    **dict.fromkeys(["options.logits_all", "options.vocab_only", "options.embedding_only"], (False,).__contains__),
    "options.tfs_z": (1,).__contains__,
    "tools[].function.strict": (False,).__contains__,  # as programs spell tools that know OpenAI's
}  # fmt: skip
"""Unmapped fields that say nothing about an answer, and whether a value says nothing; None: none says anything."""

SAYS_NOTHING = (b"null", b'""', b"[]")
"""Values that clients send of fields that they do not use."""

SPELLINGS = {
    **{option.name: f"options.{option.wire}" for option in OPTIONS},
    "max_tokens": "options.num_predict",
    "keep_alive_s": "keep_alive",
    "stop": "options.stop",
    "output_format": "format",
    "prompts": "prompt",
    "reasoning.effort": "think",
    "reasoning.mode": "think",
}
"""Canonical field names to Ollama's where they differ."""


def done_word(finish: ChoiceFinished) -> str | None:
    """The client's done_reason, None for a finish that is an error."""
    if STOP_REASONS.get(finish.raw or "") is finish.reason:
        return finish.raw
    return _DONE_WORDS.get(finish.reason)
