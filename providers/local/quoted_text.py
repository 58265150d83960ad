"""Text of clients inside a rendered prompt: what looks like a special token in it is text, not that token.

Before a template sees it, the client's text is quoted: a mark, a character that Unicode sets aside for a program's own
use, goes into each text of a special token. What the template itself writes has no marks, so its special tokens are
found, and the marks are taken out before the rest is split into pieces. Pieces are those of the text without marks.
"""

import re
from collections.abc import Iterable
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, normalizers

__all__ = ["Quoter", "is_quoted", "quoting_backend"]

_MARK: Final = "\ufdd0"
# Behind a mark that the client wrote itself.
_LITERAL: Final = "\ufdd1"


class Quoter:
    """Quotes the texts of `special`. One that is a single character has no place for a mark, and stays."""

    def __init__(self, special: Iterable[str]) -> None:
        self._special = frozenset(text for text in special if len(text) > 1)
        lengths: dict[str, set[int]] = {}
        for text in self._special:
            lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths = {start: sorted(each) for start, each in lengths.items()}
        first = sorted({text[0] for text in self._special})
        self._starts = re.compile(f"[{''.join(map(re.escape, first))}]") if first else None

    def quoted(self, text: str) -> str:
        """The text with marks, or itself where it needs none. Blocks for about 1 us a character that begins a token."""
        text = text.replace(_MARK, _MARK + _LITERAL)
        if self._starts is None:
            return text
        pieces, done = [], 0
        # Every place where a special text begins gets a mark, so none is left that overlaps another one.
        for start in self._starts.finditer(text):
            at = start.start()
            if any(text[at : at + length] in self._special for length in self._lengths.get(text[at : at + 2], ())):
                pieces.append(text[done : at + 1])
                done = at + 1
        return _MARK.join([*pieces, text[done:]]) if pieces else text


def is_quoted(text: str) -> bool:
    """Whether the text has marks, so that `quoting_backend` has to read it."""
    return _MARK in text


def quoting_backend(backend: Tokenizer) -> Tokenizer:
    """The same tokenizer for text with marks. It shares the vocabulary, so it takes little memory."""
    quoting = Tokenizer(backend.model)
    unmarked = [normalizers.Replace(Regex(f"{_MARK}(?!{_LITERAL})"), ""), normalizers.Replace(_MARK + _LITERAL, _MARK)]
    own = [] if backend.normalizer is None else [backend.normalizer]
    quoting.normalizer = normalizers.Sequence([*unmarked, *own])
    if backend.pre_tokenizer is not None:
        quoting.pre_tokenizer = backend.pre_tokenizer
    if backend.post_processor is not None:
        quoting.post_processor = backend.post_processor
    added = [token for _, token in sorted(backend.get_added_tokens_decoder().items())]
    quoting.add_tokens([_searched_first(token) if token.special else token for token in added])
    return quoting


def _searched_first(token: AddedToken) -> AddedToken:
    """A token that is looked for after the marks are gone would be found where it was quoted."""
    return AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=False,
        special=True,
    )
