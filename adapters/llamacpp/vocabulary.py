"""llama.cpp's words: the dialect's name, its fields, what of them says nothing about an answer.

Source: the README of llama.cpp's server and what llama.vim and llama.vscode send (2026-11).
"""

from collections.abc import Callable, Mapping

from adapters.field_types import WIDE_TEMPERATURE
from adapters.openai.vocabulary import COMPLETION_FIELDS, FieldTable, RequestField
from adapters.sampler_fields import SAMPLERS

__all__ = ["FIELDS", "HINTS", "LLAMACPP", "RESPONSE_FIELDS", "SPELLINGS"]

LLAMACPP = "llamacpp"
RESPONSE_FIELDS = "response_fields"
"""Names what alone the answer is to hold; a slash leads into objects."""
_SAME = ("top_p", "top_k", "min_p", "typical_p", "presence_penalty", "frequency_penalty", "seed", "ignore_eos")
FIELDS = FieldTable(
    *(COMPLETION_FIELDS.by_name[name] for name in _SAME),
    COMPLETION_FIELDS.by_name["temperature"]._replace(decoder=WIDE_TEMPERATURE),
    COMPLETION_FIELDS.by_name["repetition_penalty"]._replace(wire="repeat_penalty"),
    COMPLETION_FIELDS.by_name["return_token_ids"]._replace(wire="return_tokens"),
    *(RequestField(name, "sampling", name, decoder) for name, decoder in SAMPLERS.items()),
)
"""Fields that map one to one, as `adapters.openai` types them, but for temperatures, which may be higher here."""

_OFF = (0, False).__contains__
HINTS: Mapping[str, Callable[[object], bool] | None] = {
    # How the server keeps and shares its memory, and how long it may take.
    **dict.fromkeys(
        (
            "cache_prompt", "id_slot", "slot_id", "n_keep", "n_discard", "n_cache_reuse", "min_keep",
            "t_max_prompt_ms", "t_max_predict_ms", "n_indent", "timings_per_token", "return_progress",
        )
    ),
    # A sampler that nobody here has, switched off, and what only speaks of it.
    **dict.fromkeys(("mirostat", "post_sampling_probs"), _OFF),
    **dict.fromkeys(("mirostat_tau", "mirostat_eta")),
    "lora": ([],).__contains__,
}  # fmt: skip
"""Unmapped fields, and whether a value says nothing; None: none says anything."""

SPELLINGS = {
    "max_tokens": "n_predict",
    "output_format": "grammar",
    "logprobs": "n_probs",
    "prompts": "prompt",
    "suffix": "input_suffix",
    "temperature_last": "samplers",
}
"""Canonical field names to llama.cpp's where no row of the table tells."""
