"""Grammars of texts that a model writes inside JSON strings, where some characters are escaped: the text follows its
grammar, and the model writes it as JSON.

The compiler is given a larger vocabulary: each token once as it is (outside of strings), once as the text that it
stands for inside a string, and once as that behind a lone backslash; and two tokens of its own, for the quotes around
the text. What is generated is told to it as the one that it is at its place. Knows no requests.
"""

from collections.abc import Collection
from enum import Enum
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from llguidance import TokenizerWrapper

__all__ = ["STRING_CLOSES", "STRING_OPENS", "StringMask", "StringVocabulary", "unescaped"]

STRING_OPENS, STRING_CLOSES = "<|string-opens|>", "<|string-closes|>"
"""In a grammar, the quotes around a text that has one of its own."""

_WORD: Final = 32
_QUOTE, _BACKSLASH = b'"', b"\\"
_ESCAPES: Final = {34: 34, 92: 92, 47: 47, 98: 8, 102: 12, 110: 10, 114: 13, 116: 9}

MaskWords = npt.NDArray[np.uint32]


class Matcher(Protocol):
    """What is used of llguidance's."""

    def unsafe_compute_mask_ptr(self, trg_pointer: int, trg_bytes: int) -> object: ...
    def consume_token(self, t: int) -> bool: ...
    def is_error(self) -> bool: ...
    def get_error(self) -> str: ...
    def is_stopped(self) -> bool: ...
    def deep_copy(self) -> "Matcher": ...


def unescaped(raw: bytes) -> bytes:
    """What these bytes inside a JSON string stand for; b"" where they are not whole escapes, or end the string."""
    if _QUOTE not in raw and _BACKSLASH not in raw and min(raw, default=32) >= 32:
        return raw
    text = bytearray()
    at = 0
    while at < len(raw):
        byte = raw[at]
        if byte == 92:
            at += 1
            if at == len(raw) or raw[at] not in _ESCAPES:
                return b""
            byte = _ESCAPES[raw[at]]
        elif byte == 34 or byte < 32:
            return b""
        text.append(byte)
        at += 1
    return bytes(text)


class StringVocabulary(TokenizerWrapper):
    """Three copies of a vocabulary, `stride` ids apart, and the two quotes behind them.

    quote, backslash: the tokens that are these characters alone. Raises ValueError where there is none.
    """

    def __init__(self, inner: TokenizerWrapper, stop_ids: Collection[int]) -> None:
        tokens: list[bytes] = list(inner.tokens)
        special = {*inner.special_token_ids, *stop_ids}
        if _QUOTE not in tokens:
            raise ValueError("the vocabulary has no token for a quote")
        self.quote = tokens.index(_QUOTE)
        self.backslash = tokens.index(_BACKSLASH) if _BACKSLASH in tokens else None
        self.size = len(tokens)
        self.stride = -(-self.size // _WORD) * _WORD
        padding = [b""] * (self.stride - self.size)
        texts = [b"" if token_id in special else token for token_id, token in enumerate(tokens)]
        plain = list(map(unescaped, texts))
        behind = [unescaped(_BACKSLASH + text) if text else b"" for text in texts]
        quotes = [STRING_OPENS.encode(), STRING_CLOSES.encode()]
        self.tokens = [*tokens, *padding, *plain, *padding, *behind, *padding, *quotes]
        self.opens, self.closes = 3 * self.stride, 3 * self.stride + 1
        self.eos_token_id = inner.eos_token_id
        self.bos_token_id = inner.bos_token_id
        self.special_token_ids = [*inner.special_token_ids, self.opens, self.closes]
        self.is_tokenizer_wrapper = True
        self._encode = inner

    def __call__(self, text: str) -> list[int]:
        return list(self._encode(text))


class _Place(Enum):
    OUTSIDE = 0
    INSIDE = 1
    BEHIND_BACKSLASH = 2


class StringMask:
    """What may come next (`local_engine.generation.TokenMask`), in and out of strings. It owns the matcher.

    `error`: what to raise where the matcher cannot go on.
    """

    def __init__(
        self,
        matcher: Matcher,
        vocabulary: StringVocabulary,
        error: type[Exception],
        *,
        place: _Place = _Place.OUTSIDE,
        may_open: bool = False,
    ) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._error = error
        self._place = place
        self._may_open = may_open
        """A quote opens a text that has a grammar: known since the last `fill`."""

    def fill(self, row: MaskWords) -> None:
        vocabulary = self._vocabulary
        words = vocabulary.stride // _WORD
        whole = np.zeros(3 * words + 1, np.uint32)
        self._matcher.unsafe_compute_mask_ptr(whole.ctypes.data, whole.nbytes)
        if self._matcher.is_error():
            raise self._error(self._matcher.get_error())
        begin = self._place.value * words
        count = min(words, len(row))
        row[:count] |= whole[begin : begin + count]
        self._may_open = self._place is _Place.OUTSIDE and _has(whole, vocabulary.opens)
        if self._may_open:
            _set(row, vocabulary.quote)
        if self._place is _Place.INSIDE:
            if _has(whole, vocabulary.closes):
                _set(row, vocabulary.quote)
            if vocabulary.backslash is not None and whole[2 * words : 3 * words].any():
                _set(row, vocabulary.backslash)

    def accept(self, token_id: int) -> bool:
        vocabulary = self._vocabulary
        if self._place is _Place.INSIDE and token_id == vocabulary.backslash:
            self._place = _Place.BEHIND_BACKSLASH
            return False
        told, place = self._place.value * vocabulary.stride + token_id, self._place
        if place is _Place.BEHIND_BACKSLASH:
            place = _Place.INSIDE
        elif token_id == vocabulary.quote and place is _Place.INSIDE:
            told, place = vocabulary.closes, _Place.OUTSIDE
        elif token_id == vocabulary.quote and self._may_open:
            told, place = vocabulary.opens, _Place.INSIDE
        if not self._matcher.consume_token(told):
            raise self._error(self._matcher.get_error())
        self._place = place
        return bool(self._matcher.is_stopped())

    def fork(self) -> "StringMask":
        own = self._matcher.deep_copy()
        return StringMask(own, self._vocabulary, self._error, place=self._place, may_open=self._may_open)


def _has(words: MaskWords, bit: int) -> bool:
    return bool(words[bit // _WORD] >> np.uint32(bit % _WORD) & np.uint32(1))


def _set(words: MaskWords, bit: int) -> None:
    words[bit // _WORD] |= np.uint32(1 << bit % _WORD)
