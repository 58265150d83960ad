"""Filling in the middle: the marks with which models were trained to write what stands between two texts.

Knows no requests. Sources: the models' own descriptions, as of 2026-11.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from providers.local.tokenizer import Tokenizer

__all__ = ["Infill", "infill"]


class _Marks(NamedTuple):
    """`suffix_first`: the suffix and its mark stand before the prefix. `middle` "": nothing marks where to go on."""

    prefix: str
    suffix: str
    middle: str = ""
    suffix_first: bool = False


_KINDS: Final = (
    _Marks("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma, Granite
    _Marks("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder
    _Marks("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
    _Marks("<PRE>", "<SUF>", "<MID>"),  # Code Llama
    _Marks("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama, as its tokenizer writes them
    _Marks("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM
    _Marks("[PREFIX]", "[SUFFIX]", suffix_first=True),  # Codestral
)


class Infill(NamedTuple):
    """The ids of a vocabulary's marks; `middle` is empty where it has none."""

    prefix: int
    suffix: int
    middle: tuple[int, ...]
    suffix_first: bool

    def prompt(self, before: Sequence[int], behind: Sequence[int]) -> tuple[int, ...]:
        """The prompt for what stands between these tokens."""
        if self.suffix_first:
            return (self.suffix, *behind, self.prefix, *before, *self.middle)
        return (self.prefix, *before, self.suffix, *behind, *self.middle)


def infill(tokenizer: Tokenizer) -> Infill | None:
    """How this vocabulary's model fills in; None where it has no marks for it."""
    for marks in _KINDS:
        ids = [_id_of(tokenizer, mark) for mark in (marks.prefix, marks.suffix, marks.middle) if mark]
        known = [number for number in ids if number is not None]
        if len(known) == len(ids):
            return Infill(known[0], known[1], tuple(known[2:]), marks.suffix_first)
    return None


def _id_of(tokenizer: Tokenizer, mark: str) -> int | None:
    """The token that this mark is; None where it is several, or another text."""
    ids = tokenizer.encode(mark, add_special_tokens=False)
    if len(ids) != 1 or tokenizer.token_bytes(ids[0]).strip() != mark.strip("▁").encode():
        return None
    return ids[0]
